"""Why a run failed: who was first, with what, and what to try; hidden while nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.widgets import Static

from runners import words
from runners.record import Record
from runners.snapshot import Snapshot
from runners.state import RunError
from tui.data.advice import advice
from tui.data.tail import last_lines
from tui.keymap import keyed

TAIL, SHORT_TAIL = 4, 0  # lines of the log; a short screen has none to spare


class FailureCard(Static):
    """`show` gives it a moment of the run."""

    DEFAULT_CSS = """
    FailureCard {
        display: none; height: auto; max-height: 12; padding: 0 1;
        border: round $error; border-title-color: $error;
        &.-failed { display: block; }
    }
    """

    _tail: int | None = None  # of the card that is shown

    def show(self, now: Snapshot, record: Record) -> None:
        error = now.state.error
        failed = error is not None and not now.state.live
        self.set_class(failed, "-failed")
        tail = SHORT_TAIL if self.screen.has_class("-short") else TAIL
        if error is not None and failed and tail != self._tail:
            self._tail = tail
            self.border_title = "failed"
            self.update(card(error, record, tail, lambda text: keyed(text, self.app)))


def card(error: RunError, record: Record, tail: int, in_keys: Callable[[str], str]) -> Text:
    """The lines of the card, with so many of the log; `in_keys` puts keys into words."""
    when = f", after step {error.step:,}" if error.step else ""
    who = "" if error.rank is None else f"{error.who} was the first{when}: "
    kind = f"{error.type}: " if error.traceback else ""  # else the words are ours
    text = Text.assemble((who, "bold"), (kind, "bold red"), words.line(error.message))
    for line in last_lines(record.dir / "logs" / f"{error.log}.log", tail):
        line.stylize("dim")
        text.append("\n  ").append_text(line)
    if error.collateral:
        text.append(f"\ndied of its death: {words.ranks(error.collateral)}", "dim")
    text.append("\ntry: ", "bold").append(in_keys(advice(error)))
    rest = "no checkpoint was written"
    if record.last_checkpoint:
        rest = "{run.resume} resumes from the last checkpoint"
    return text.append(f"\n{in_keys(rest)}", "dim")
