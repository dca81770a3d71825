"""A form of a few lines of text."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.widgets import Input, Label

from distrain.tui.dialogs.dialog import Answer, Dialog


class EditDialog(Dialog[bool]):
    """Edit `fields` (values by name) and pass them to `save`; return True once they are saved.

    `save` returns an error message, or an empty string. After an error the dialog stays open with
    what was typed.
    """

    FIRST = "Input"

    def __init__(
        self, heading: str, fields: dict[str, str], save: Callable[[dict[str, str]], str]
    ) -> None:
        super().__init__(heading, [Answer("save", "Save", "primary", "enter")])
        self._fields = fields
        self._save = save

    def compose_body(self) -> ComposeResult:
        for name, value in self._fields.items():
            yield Label(name, classes="field-name")
            yield Input(value, id=f"field-{name}")
        yield Label("", classes="complaint", markup=False)

    def on_input_submitted(self) -> None:
        self.answer("save")

    def answer(self, id: str) -> None:
        values = {name: self.query_one(f"#field-{name}", Input).value for name in self._fields}
        if error := self._save(values):
            self.query_one(".complaint", Label).update(error)
        else:
            self.dismiss(True)
