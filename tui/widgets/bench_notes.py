"""What follows from a bench: verdicts, warnings, what is equal and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from runners import words
from runners.comparison import Comparison, Difference, wording
from tui import marks
from tui.widgets.text_pane import TextPane, wrapped

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
        yield from wrapped(verdict, "bold", width)
    for warning in found.warnings:
        yield from wrapped(f"{WARNING} {warning}", "yellow", width)
    yield from settings(found, width)


def settings(found: Comparison, width: int) -> Iterator[Text]:
    """What differs, that which makes the comparison unequal first, and what is equal."""
    for each in found.differences:
        word, style = ("differs", "") if each.fair else (f"{WARNING} UNEQUAL", "bold yellow")
        yield from wrapped(f"{word}: {_values(each, found, width)}", style, width)
    if found.equal:
        yield from wrapped(f"equal: {wording.settings(found.equal)}", "dim", width)


def _values(each: Difference, found: Comparison, width: int) -> str:
    """What each contestant has, by name; where that is long, by mark."""
    names = [contestant.name for contestant in found.contestants]
    told = wording.difference(each, names)
    if len(told) <= width:
        return told
    by_value: dict[str, str] = {}
    for mark, value in zip(marks.of_runs(names), each.values, strict=True):
        shown = words.MISSING if value is None else value
        by_value[shown] = by_value.get(shown, "") + mark.shape
    return f"{each.key}: " + ", ".join(f"{shapes} {value}" for value, shapes in by_value.items())
