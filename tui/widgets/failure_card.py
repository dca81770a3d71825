"""Why a run failed: the rank that failed first, its error, and what to try."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.content import Content
from textual.widgets import Static

from distrain.runners import formatting
from distrain.tui.data.failure import FailureDetails, advice_for
from distrain.tui.keymap import insert_keys


class FailureCard(Static):
    """Shows a failure; hidden while there is none."""

    DEFAULT_CSS = """
    FailureCard {
        display: none; height: auto; max-height: 12; padding: 0 1;
        border: round $error; border-title-color: $error; border-title-style: bold;
        &.-failed { display: block; }
    }
    """

    _shown: tuple[FailureDetails, bool] | None = None

    def show(self, failure: FailureDetails | None, without_log: bool = False) -> None:
        """Show a failure; `without_log` leaves out the end of the log, which is shown elsewhere."""
        self.set_class(failure is not None, "-failed")
        if failure is not None and (failure, without_log) != self._shown:
            self._shown = failure, without_log
            self.border_title = Content(headline(failure))
            self.update(card(failure, without_log, lambda text: insert_keys(text, self.app)))


def headline(failure: FailureDetails) -> str:
    """Return the title of the card: which rank failed first, and when."""
    error = failure.error
    if error.rank is None:
        return "✘ failed"
    when = f" after step {error.step:,}" if error.step else ""
    return f"✘ {error.origin} failed first{when}"


def card(failure: FailureDetails, without_log: bool, insert_keys: Callable[[str], str]) -> Text:
    """Return the text of the card: each fact once.

    `insert_keys` replaces the ids of actions in a text by their keys.
    """
    error = failure.error
    text = Text()
    if error.traceback and error.rank is not None:  # otherwise the message is a sentence of ours
        text.append(f"{error.type}: ", "bold red")
    text.append(formatting.single_line(error.message))
    if place := failure.place:
        text.append("\n").append(formatting.single_line(place.describe()), "bold")
        if place.source:
            text.append("\n    ").append(formatting.single_line(place.source), "italic")
    elif not without_log:
        for line in failure.log_lines:
            line = line.copy()
            line.stylize("dim")
            text.append("\n  ").append_text(line)
    advice = insert_keys(advice_for(error, failure.is_script, failure.is_observed))
    text.append("\ntry: ", "bold").append(advice)
    notes = [_describe_resume(failure)]
    if error.secondary:
        notes.insert(0, f"taken down with it: {formatting.ranks(error.secondary)}")
    return text.append(f"\n{insert_keys(' · '.join(notes))}", "dim")


def _describe_resume(failure: FailureDetails) -> str:
    """Return from where a resumed run continues; distrain does not know what a script has saved."""
    if failure.is_observed:
        return "distrain did not start the program"
    if failure.is_script:
        return "{run.resume} starts the script again, which may load its own checkpoint"
    if failure.has_checkpoint:
        return "{run.resume} resumes from the last checkpoint"
    return "no checkpoint was written"
