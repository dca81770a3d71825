"""A question that is answered with one line of text."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.widgets import Input, Label, Static

from distrain.tui.dialogs.dialog import Answer, Dialog


class PromptDialog(Dialog[str]):
    """Return what was typed, such as a name to save something under.

    `action` is what its button does. `check` returns what is wrong with the text, or an empty
    string; it is shown while typing.
    """

    FIRST = "Input"

    def __init__(
        self,
        heading: str,
        text: str,
        value: str = "",
        check: Callable[[str], str] = lambda value: "",
        action: str = "Save",
    ) -> None:
        super().__init__(heading, [Answer("save", action, "primary", "enter")])
        self._text = text
        self._value = value
        self._check = check

    def compose_body(self) -> ComposeResult:
        yield Static(self._text, markup=False)
        yield Input(self._value)
        yield Label("", classes="complaint", markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(".complaint", Label).update(self._check(event.value))

    def on_input_submitted(self) -> None:
        self.answer("save")

    def answer(self, id: str) -> None:
        value = self.query_one(Input).value
        if not self._check(value):
            self.dismiss(value)
