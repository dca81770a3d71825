"""A question with a few answers, each a button."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Label, Static
from textual.widgets.button import ButtonVariant

from distrain.tui.dialogs.dialog import Dialog


class Answer(NamedTuple):
    id: str
    label: str
    variant: ButtonVariant


class ChoiceDialog(Dialog[str]):
    """Return the id of the answer that was chosen. The first answer has the focus."""

    def __init__(self, title: str, text: str, answers: Sequence[Answer]) -> None:
        super().__init__()
        self._title = title
        self._answers = answers
        self.text = Static(text, markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield self.text
            with Horizontal(classes="dialog-buttons"):
                for answer in self._answers:
                    yield Button(answer.label, id=answer.id, variant=answer.variant)
                yield Button("Cancel (esc)", id="cancel")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        name = event.button.id
        self.dismiss(None if name == "cancel" else name)

    def on_key(self, event: events.Key) -> None:
        if event.key == "right":
            self.focus_next()
        elif event.key == "left":
            self.focus_previous()


class RiskyChoiceDialog(ChoiceDialog):
    """A choice whose safe answer, "Cancel", has the focus."""

    AUTO_FOCUS = "#cancel"
