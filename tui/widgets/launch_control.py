"""The button that launches, in one line: it shows what a press does."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message
from textual.widgets import Static

from distrain.tui import keymap


class LaunchControl(Static, can_focus=True):
    """Shows an action, and posts `Pressed` on Enter, space or a click."""

    DEFAULT_CSS = """
    LaunchControl {
        height: 1; padding: 0 1; text-style: bold; color: $text-accent;
        text-wrap: nowrap; text-overflow: ellipsis;
        &.-impossible { color: $text-error; }
        &:focus { background: $block-cursor-background; color: $block-cursor-foreground; }
    }
    """
    BINDINGS = [keymap.make_hidden_binding("enter,space", "press")]  # noqa: RUF012

    class Pressed(Message):
        """The user launches what the control shows, possible or not."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.text = ""
        self._texts: Sequence[str] = ("",)

    def show(self, texts: Sequence[str], is_possible: bool) -> None:
        """Show what a press does, or why it does nothing: the first of the texts that fits."""
        self._texts = texts
        self._fit()
        self.set_class(not is_possible, "-impossible")

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        room = self.content_size.width
        text = next((text for text in self._texts if len(text) <= room), self._texts[-1])
        if text != self.text:
            self.text = text
            self.update(text)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_press()

    def action_press(self) -> None:
        self.post_message(self.Pressed())
