"""The base of all dialogs, with the one rule for where the focus starts; and the plain question."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, TypeVar

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static
from textual.widgets.button import ButtonVariant

from distrain.tui import keymap
from distrain.tui.base_app import SCREENS_CSS, BaseApp
from distrain.tui.data.typed_text import is_much
from distrain.tui.widgets.fitted_screen import FittedScreen
from distrain.tui.widgets.toast_place import follow_layout

T = TypeVar("T")
CANCEL = "cancel"


class Answer(NamedTuple):
    """An answer of a dialog, as a button. A dialog without fields also takes its `key`, which must
    not be the one that opens the dialog, because keys repeat, and not `n`, which reads as "no".
    """

    id: str
    label: str
    variant: ButtonVariant
    key: str = ""

    @property
    def text(self) -> str:
        """Return the text of the button."""
        return f"{self.label} ({self.key})" if self.key else self.label


class Dialog(FittedScreen[T], ModalScreen[T]):
    """A modal window with a heading, a body and, below it, Cancel and the answers.

    Where there are answers, Cancel has the focus, so that Enter neither changes nor loses anything;
    → goes to the answers, those with the least effect first. A dialog whose purpose is to type or
    to pick something has the focus there. Escape closes every dialog without an answer (None); it
    asks first if much was typed for an answer.
    """

    CSS_PATH = SCREENS_CSS
    FIRST = ""  # selector of what has the focus at first, instead of Cancel
    LOOK = ""  # further CSS classes of the window
    BINDINGS = [  # noqa: RUF012
        Binding("escape", "dismiss_without", "Back", show=False),
        keymap.make_hidden_binding("ctrl+q", "quit", "app.quit"),
        Binding("left", "next_button(-1)", show=False),
        Binding("right", "next_button(1)", show=False),
    ]

    def __init__(
        self, heading: str = "", answers: Sequence[Answer] = (), cancel: str = "Cancel"
    ) -> None:
        super().__init__()
        self._heading = heading
        self._answers = answers
        self._cancel = Answer(CANCEL, cancel, "default", "esc")
        self._texts_before: dict[Input, str] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes=f"dialog {self.LOOK}"):
            yield Label(self._heading, classes="dialog-title", markup=False)
            yield from self.compose_body()
            if self._answers:
                # After the last field tab goes to what Enter does in the field.
                ordered = [self._cancel, *self._answers]
                if self.FIRST:
                    ordered = [*self._answers, self._cancel]
                with Horizontal(classes="dialog-buttons"):
                    for answer in ordered:
                        yield Button(answer.text, id=answer.id, variant=answer.variant)
            yield from self.compose_end()

    def compose_body(self) -> ComposeResult:
        """Yield what is between the heading and the buttons."""
        yield from ()

    def compose_end(self) -> ComposeResult:
        """Yield what is below the buttons."""
        yield from ()

    def _on_mount(self, event: events.Mount) -> None:
        super()._on_mount(event)
        follow_layout(self)
        self._texts_before = {line: line.value for line in self.query(Input)}
        if first := self.FIRST or (f"#{CANCEL}" if self._answers else ""):
            self.set_focus(self.query(first).first())  # before the first key that follows

    # --- answers --------------------------------------------------------------------------------

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == CANCEL:
            self.action_dismiss_without()
        else:
            self.answer(event.button.id or "")

    def answer(self, id: str) -> None:
        """Handle an answer other than Cancel; dialogs without one have nothing to do."""

    def action_next_button(self, step: int) -> None:
        buttons = list(self.query(".dialog-buttons Button").results(Button))
        if self.focused not in buttons:
            raise SkipAction()
        index = buttons.index(self.focused) + step
        self.set_focus(buttons[max(0, min(index, len(buttons) - 1))])

    def action_dismiss_without(self) -> None:
        """Close without an answer; ask first where a long text would be lost."""
        self._discard(self.dismiss)

    def action_quit(self) -> None:
        """Quit the app; ask first where a long text would be lost."""
        self._discard(lambda: self.app.call_later(self.app.action_quit))

    def _discard(self, leave: Callable[[], object]) -> None:
        texts = self._texts_before.items()
        typed = [line.value for line, before in texts if is_much(before, line.value)]
        if typed and self._answers:
            self._ask_to_discard(typed, leave)
        else:
            leave()

    def _ask_to_discard(self, typed: Sequence[str], leave: Callable[[], object]) -> None:
        def answered(choice: str | None) -> None:
            if choice:
                leave()

        if self.app.screen is not self:
            return  # several presses of Escape ask once
        question = discard_question("Discard what you typed?", "\n".join(typed))
        self.app.push_screen(question, answered)

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the dialog with a result. Keys that were pressed before it was gone change nothing:
        Textual would close the screen below.
        """
        if self not in self.app.screen_stack:
            return AwaitComplete()
        return super().dismiss(result)


class ChoiceDialog(Dialog[str]):
    """Return the id of the answer that was chosen, by its button or its key.

    A key that the user has given to an action is none of an answer: it may have opened the dialog,
    and keys repeat.
    """

    def __init__(
        self, heading: str, text: str, answers: Sequence[Answer], cancel: str = "Cancel"
    ) -> None:
        app = self.app
        assert isinstance(app, BaseApp)
        super().__init__(heading, answers, cancel)
        self.leave_keys(keymap.remapped_characters(app.settings.keys))
        self.text = Static(text, markup=False)
        self._hint = Label("", classes="quiet", markup=False)

    def leave_keys(self, keys: Container[str]) -> None:
        """Take none of these keys as an answer. A question that opens late needs it for those of
        the screen below, which may be pressed in the meantime. Call it before the dialog opens.
        """
        self._answers = [
            each._replace(key="") if each.key in keys else each for each in self._answers
        ]

    def compose_body(self) -> ComposeResult:
        yield self.text

    def compose_end(self) -> ComposeResult:
        yield self._hint

    def on_descendant_focus(self) -> None:
        """Write what Enter does: it is not obvious that the safe answer has the focus."""
        focused = self.focused.id if self.focused else ""
        for answer in (self._cancel, *self._answers):
            if answer.id == focused:
                self._hint.update(f"enter: {answer.label} · ← → other answers")

    def on_key(self, event: events.Key) -> None:
        for answer in self._answers:
            if answer.key and answer.key == event.character:
                event.stop()
                self.answer(answer.id)

    def answer(self, id: str) -> None:
        self.dismiss(id)


def discard_question(heading: str, text: str) -> ChoiceDialog:
    """Return the question before a typed text is lost."""
    return ChoiceDialog(heading, text, [Answer("yes", "Discard", "warning", "d")], "Keep editing")
