"""The keys that work here, in the bottom line: as many as fit, in the order of the keymap.

Textual's own footer is a widget for each key, which is dear at the start of every screen, and it
cuts off what has no room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from tui.widgets.text_pane import strip_of

if TYPE_CHECKING:
    from tui.screens.base import AppScreen

PALETTE = "palette"


class Shown(NamedTuple):
    """A key as it is written, with the cells that it takes."""

    key: str
    text: str
    label: str
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(f" {self.text} {self.label} ")


class KeyBar(Widget):
    """Follows the focus; a click on a key presses it."""

    DEFAULT_CSS = """
    KeyBar { dock: bottom; height: 1; background: $footer-background; color: $footer-foreground; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[Shown] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._look)
        self._look(self.screen)

    def on_resize(self) -> None:
        self._look(self.screen)

    def _look(self, screen: Screen[object]) -> None:
        found: dict[str, Shown] = {}
        for active in screen.active_bindings.values():
            if cast("AppScreen", screen).offers(active.binding):
                found.setdefault(active.binding.action, self._shown(active.binding))
        palette = Shown(
            self.app.COMMAND_PALETTE_BINDING, self.app.get_key_display(_PALETTE), PALETTE
        )
        keys = fitted(list(found.values()), palette, self.size.width)
        if keys != self._keys:
            self._keys = keys
            self.refresh()

    def _shown(self, binding: Binding) -> Shown:
        return Shown(binding.key, self.app.get_key_display(binding), binding.description)

    def render_line(self, y: int) -> Strip:
        line = Text(no_wrap=True)
        for shown in self._keys:
            line.append(" " * (shown.start - len(line)))
            line.append(f" {shown.text} ", "bold").append(f"{shown.label} ", "dim")
        return strip_of(line, self)

    def on_click(self, event: events.Click) -> None:
        for shown in self._keys:
            if shown.start <= event.x < shown.end:
                self.app.simulate_key(shown.key)


_PALETTE = Binding("ctrl+p", "command_palette", PALETTE)


def fitted(keys: list[Shown], palette: Shown, width: int) -> list[Shown]:
    """From the left what there is room for; the palette, which has all the others, at the right."""
    last = palette._replace(start=max(width - palette.end, 0))
    placed: list[Shown] = []
    for shown in keys:
        after = shown._replace(start=placed[-1].end if placed else 0)
        if after.end > last.start:
            break
        placed.append(after)
    return [*placed, last]
