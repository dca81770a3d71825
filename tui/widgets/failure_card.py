"""Why a run failed: the rank that failed first, its error, and what to try."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.widgets import Static

from distrain.runners import formatting
from distrain.tui.data.failure import LOG_LINES, FailureDetails, advice_for
from distrain.tui.keymap import insert_keys


class FailureCard(Static):
    """Shows a failure; hidden while there is none."""

    DEFAULT_CSS = """
    FailureCard {
        display: none; height: auto; max-height: 12; padding: 0 1;
        border: round $error; border-title-color: $error;
        &.-failed { display: block; }
    }
    """

    _shown: tuple[FailureDetails, int] | None = None

    def show(self, failure: FailureDetails | None) -> None:
        self.set_class(failure is not None, "-failed")
        log_lines = 0 if self.screen.has_class("-short") else LOG_LINES
        if failure is not None and (failure, log_lines) != self._shown:
            self._shown = failure, log_lines
            self.border_title = "Failed"
            self.update(card(failure, log_lines, lambda text: insert_keys(text, self.app)))


def card(failure: FailureDetails, log_lines: int, insert_keys: Callable[[str], str]) -> Text:
    """Return the text of the card with up to `log_lines` lines of the log.

    `insert_keys` replaces the ids of actions in a text by their keys.
    """
    error = failure.error
    text = Text()
    if error.rank is not None:
        when = f" after step {error.step:,}" if error.step else ""
        text.append(f"{error.origin} failed first{when}: ", "bold")
    if error.traceback:  # otherwise the message is a sentence of ours
        text.append(f"{error.type}: ", "bold red")
    text.append(formatting.single_line(error.message))
    for line in failure.log_lines[len(failure.log_lines) - log_lines :] if log_lines else ():
        line = line.copy()
        line.stylize("dim")
        text.append("\n  ").append_text(line)
    if error.secondary:
        text.append(f"\ntaken down with it: {formatting.ranks(error.secondary)}", "dim")
    text.append("\ntry: ", "bold").append(insert_keys(advice_for(error)))
    resume = "no checkpoint was written"
    if failure.has_checkpoint:
        resume = "{run.resume} resumes from the last checkpoint"
    return text.append(f"\n{insert_keys(resume)}", "dim")
