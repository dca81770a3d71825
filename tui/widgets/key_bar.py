"""The bottom line: the keys of the screen and the focused pane, as many as fit.

Textual's own footer makes a widget for each key, which slows down the start of every screen, and
cuts off keys at its right end.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from distrain.tui.widgets.text_pane import strip_of

# At the right end, at every width.
ALWAYS = ("app.help", "app.quit", "app.palette")
FULL = "app.full"


class KeyOwner(Protocol):
    """A screen that decides which of its keys the bar shows."""

    def offers(self, binding: Binding) -> bool: ...


class ShownKey(NamedTuple):
    """A key, its display text and label, and the cell where it starts."""

    key: str
    text: str
    label: str
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(f" {self.text} {self.label} ")


class KeyBar(Widget):
    """Shows other keys when the focus moves. A click on a key presses it."""

    DEFAULT_CSS = """
    KeyBar { dock: bottom; height: 1; background: $footer-background; color: $footer-foreground; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[ShownKey] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._update)
        self.watch(self.screen, "maximized", lambda: self._update(self.screen), init=False)
        self._update(self.screen)

    def on_resize(self) -> None:
        self._update(self.screen)

    def _update(self, screen: Screen[object]) -> None:
        found: dict[str, ShownKey] = {}
        always: dict[str, ShownKey] = {}
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.id == FULL and screen.maximized:
                restore = self._shown(binding)._replace(label="Restore")
                found = {binding.action: restore, **found}
            elif binding.id in ALWAYS:
                # A letter, unless it is text where the focus is.
                shown = self._shown(binding)
                if binding.id not in always or len(shown.text) < len(always[binding.id].text):
                    always[binding.id] = shown
            elif cast(KeyOwner, screen).offers(binding):
                found.setdefault(binding.action, self._shown(binding))
        last = [always[id] for id in ALWAYS if id in always]
        keys = fit_keys(list(found.values()), last, self.size.width)
        if keys != self._keys:
            self._keys = keys
            self.refresh()

    def _shown(self, binding: Binding) -> ShownKey:
        return ShownKey(binding.key, self.app.get_key_display(binding), binding.description)

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


def fit_keys(keys: list[ShownKey], last: list[ShownKey], width: int) -> list[ShownKey]:
    """Place `last` at the right end, and before them the first of the other keys that fit."""
    start = max(width - sum(shown.end - shown.start for shown in last), 0)
    placed: list[ShownKey] = []
    for shown in keys:
        candidate = shown._replace(start=placed[-1].end if placed else 0)
        if candidate.end > start:
            break
        placed.append(candidate)
    for shown in last:
        placed.append(shown._replace(start=start))
        start = placed[-1].end
    return placed
