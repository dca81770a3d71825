"""Small windows over a screen: a choice, a line of text, a list, an error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, OptionList, Static
from textual.widgets.option_list import Option

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """Escape dismisses it without an answer."""

    BINDINGS = [Binding("escape", "dismiss_without", "Back", show=False)]  # noqa: RUF012

    def action_dismiss_without(self) -> None:
        self.dismiss(None)


class Choice(Dialog[str]):
    """Asks for one of a few answers, each a button; gives its id.

    `answers` are (id, label, variant of Textual's button); the first one has the focus.
    """

    def __init__(self, title: str, text: str, answers: Sequence[tuple[str, str, str]]) -> None:
        super().__init__()
        self._title, self._answers = title, answers
        self.text = Static(text, markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield self.text
            with Horizontal(classes="dialog-buttons"):
                for name, label, variant in self._answers:
                    yield Button(label, id=name, variant=variant)  # type: ignore[arg-type]
                yield Button("Cancel (esc)", id="cancel")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        name = event.button.id
        self.dismiss(None if name == "cancel" else name)

    def on_key(self, event: object) -> None:
        key = getattr(event, "key", "")
        if key in ("left", "right"):
            self.focus_next() if key == "right" else self.focus_previous()


class Prompt(Dialog[str]):
    """Asks for a name to save something under. `check` gives a complaint, shown while typing."""

    def __init__(
        self,
        title: str,
        text: str,
        value: str = "",
        check: Callable[[str], str] = lambda value: "",
    ) -> None:
        super().__init__()
        self._title, self._text, self._value, self._check = title, text, value, check

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield Static(self._text, markup=False)
            yield Input(self._value)
            yield Label("", classes="complaint", markup=False)
            yield Label("enter saves · esc goes back", classes="quiet")

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(".complaint", Label).update(self._check(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if not self._check(event.value):
            self.dismiss(event.value)


class PickOne(Dialog[str]):
    """Asks for one of many; gives its id. `options` are (id, text)."""

    def __init__(self, title: str, options: Sequence[tuple[str, str]], now: str = "") -> None:
        super().__init__()
        self._title, self._options, self._now = title, options, now

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield OptionList(*(Option(text, id=name) for name, text in self._options))

    def on_mount(self) -> None:
        names = [name for name, _ in self._options]
        if self._now in names:
            self.query_one(OptionList).highlighted = names.index(self._now)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)


class Edit(Dialog[bool]):
    """Asks for several lines of text by name; stays open with what was typed while `save` gives
    a complaint.
    """

    def __init__(
        self, title: str, fields: dict[str, str], save: Callable[[dict[str, str]], str]
    ) -> None:
        super().__init__()
        self._title, self._fields, self._save = title, fields, save

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            for name, value in self._fields.items():
                yield Label(name, classes="field-name")
                yield Input(value, id=f"field-{name}")
            yield Label("", classes="complaint", markup=False)
            yield Label("enter saves · esc leaves all as it was", classes="quiet")

    def on_input_submitted(self) -> None:
        values = {name: self.query_one(f"#field-{name}", Input).value for name in self._fields}
        if complaint := self._save(values):
            self.query_one(".complaint", Label).update(complaint)
        else:
            self.dismiss(True)


class ErrorDialog(Dialog[None]):
    """An error of the app itself: what it was, and the way back to the runs."""

    BINDINGS = [Binding("y", "copy", "Copy")]  # noqa: RUF012

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._headline = f"{type(error).__name__}: {error}"
        self._trace = "".join(traceback.format_exception(error))

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide error"):
            yield Label("distrain-tui made a mistake", classes="dialog-title")
            yield Static("The runs are not touched by it.", classes="quiet")
            yield Static(self._headline, markup=False)
            with VerticalScroll():
                yield Static(self._trace, markup=False, classes="quiet")
            yield Label("y copies this · esc goes on", classes="quiet")

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._trace)
        self.notify("the error was copied")
