"""A question that is answered with one line of text."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Label, Static

from distrain.tui.dialogs.dialog import Dialog


class PromptDialog(Dialog[str]):
    """Return a name to save something under.

    `check` returns what is wrong with a name, or an empty string; it is shown while typing.
    """

    def __init__(
        self,
        title: str,
        text: str,
        value: str = "",
        check: Callable[[str], str] = lambda value: "",
    ) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._value = value
        self._check = check

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield Static(self._text, markup=False)
            yield Input(self._value)
            yield Label("", classes="complaint", markup=False)
            yield Label("enter saves · esc cancels", classes="quiet")

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(".complaint", Label).update(self._check(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if not self._check(event.value):
            self.dismiss(event.value)
