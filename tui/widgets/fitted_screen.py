"""A screen that fits the terminal, with style classes for its width and height."""

from __future__ import annotations

from typing import Any, TypeVar

from textual.geometry import Size
from textual.screen import Screen

from distrain.tui.widgets.reliable_timers import ReliableTimers

T = TypeVar("T")

# Classes that a screen gets by its width and height, each from so many cells on.
BREAKPOINTS = (
    [(0, "-narrow"), (100, "-normal"), (160, "-wide")],
    [(0, "-short"), (30, "-medium"), (50, "-tall")],
)


class FittedScreen(ReliableTimers, Screen[T]):
    """A screen that always has the size of the terminal and the classes for it.

    With the breakpoints of Textual, a screen whose terminal changes several times within a moment
    can keep an earlier layout until the next change: a message with an earlier size may replace the
    last one, and the layout that precedes a change of classes is cached.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_class(*_find_classes(self.app.size), update=False)

    def _screen_resized(self, size: Size) -> None:
        found = _find_classes(self.app.size)
        names = [name for names in BREAKPOINTS for _, name in names]
        self.update_classes({name: name in found for name in names}, animate=False)
        super()._screen_resized(self.app.size)


def _find_classes(size: Size) -> list[str]:
    return [
        next(name for least, name in reversed(names) if cells >= least)
        for cells, names in zip(size, BREAKPOINTS, strict=True)
    ]
