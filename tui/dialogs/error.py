"""An error of the app itself."""

from __future__ import annotations

import traceback

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Label, Static

from distrain.tui.dialogs.dialog import Dialog


class ErrorDialog(Dialog[None]):
    """Show an unexpected error with its traceback."""

    LOOK = "wide error"
    BINDINGS = [Binding("y", "copy", "Copy")]  # noqa: RUF012

    def __init__(self, error: BaseException) -> None:
        super().__init__("Internal error")
        self._headline = f"{type(error).__name__}: {error}"
        self._trace = "".join(traceback.format_exception(error))

    def compose_body(self) -> ComposeResult:
        yield Static("Runs are not affected.", classes="quiet")
        yield Static(self._headline, markup=False)
        with VerticalScroll():
            yield Static(self._trace, markup=False, classes="quiet")
        yield Label("y copies this · esc returns to the runs", classes="quiet")

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._trace)
        self.notify("error copied")
