"""What follows from a bench: verdicts, warnings, what is equal and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from runners.comparison import Comparison, wording
from tui.widgets.text_pane import TextPane

WARNING = "▲"


class BenchNotes(TextPane):
    """`show` gives it the comparison."""

    HELP = (
        "What may be said of the contestants so far, what makes that unsure, what they have in "
        "common and what they differ in."
    )

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self._found: Comparison | None = None

    def show(self, found: Comparison) -> None:
        self._found = found
        self._paint()

    def _paint(self) -> None:
        if self._found is not None:
            self.put(list(notes(self._found, self.width)))


def notes(found: Comparison, width: int) -> Iterator[Text]:
    """Lines no wider than that; what matters most comes first."""
    for verdict in found.verdicts:
        yield from _wrapped(verdict, "bold", width)
    for warning in found.warnings:
        yield from _wrapped(f"{WARNING} {warning}", "yellow", width)
    yield from settings(found, width)


def settings(found: Comparison, width: int) -> Iterator[Text]:
    """What differs, that which makes the comparison unequal first, and what is equal."""
    names = [each.name for each in found.contestants]
    for each in found.differences:
        word, style = ("differs", "") if each.fair else (f"{WARNING} UNEQUAL", "bold yellow")
        yield from _wrapped(f"{word}: {wording.difference(each, names)}", style, width)
    if found.equal:
        yield from _wrapped(f"equal: {wording.settings(found.equal)}", "dim", width)


def _wrapped(text: str, style: str, width: int) -> Iterator[Text]:
    for line in wrap(text, max(width, 10), subsequent_indent="  "):
        yield Text(line, style, no_wrap=True)
