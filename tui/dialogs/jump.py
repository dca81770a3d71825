"""Jump mode: a label on every pane and field of the screen below."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.widgets import Static

from distrain.tui.data.jump import JumpTarget, make_labels
from distrain.tui.dialogs.dialog import Dialog


class JumpDialog(Dialog[Callable[[], object]]):
    """Return what the label does whose letters are typed. Any other key closes it.

    `targets` are by their labels.
    """

    def __init__(self, targets: Sequence[JumpTarget]) -> None:
        super().__init__()
        labels = make_labels(len(targets))
        self.targets = dict(zip(labels, targets, strict=True))
        self._typed = ""

    def compose(self) -> ComposeResult:
        for label, target in self.targets.items():
            if not target.name:
                widget = Static(f" {label} ", classes="jump-label")
                widget.styles.offset = (target.x, target.y)
                yield widget
        yield Static(self._describe(), id="jump-hint")

    def _describe(self) -> Text:
        text = Text(" type a letter · esc closes", "dim", no_wrap=True, overflow="ellipsis")
        for label, target in self.targets.items():
            if target.name:
                text.append("   ").append(f" {label} ", "reverse not dim")
                text.append(f" {target.name}", "not dim")
        return text

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            return
        event.stop()
        self._typed += event.character or " "
        if target := self.targets.get(self._typed):
            self.dismiss(target.go)
        elif not any(label.startswith(self._typed) for label in self.targets):
            self.dismiss(None)
