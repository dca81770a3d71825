"""Where jump mode can go on a screen: every visible pane and field that can have the focus."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol, runtime_checkable

from textual.screen import Screen

from distrain.tui.data.jump import JumpTarget
from distrain.tui.dialogs.jump import JumpDialog


@runtime_checkable
class HasTargets(Protocol):
    """A screen or pane with more targets than itself, such as the fields of a form."""

    def jump_targets(self) -> list[JumpTarget]:
        """Return the targets, with cells of the screen."""


def find_targets(screen: Screen[Any]) -> list[JumpTarget]:
    """Return the targets from top to bottom; those that are not visible last."""
    targets = []
    for pane in screen.query("*"):
        if pane.focusable and pane.region and screen.can_view_partial(pane):
            inner = pane.jump_targets() if isinstance(pane, HasTargets) else []
            go = partial(screen.set_focus, pane)
            targets += inner or [JumpTarget(pane.region.x + 1, pane.region.y, go)]
    targets.sort(key=lambda target: (target.y, target.x))
    hidden = screen.jump_targets() if isinstance(screen, HasTargets) else []
    return targets + hidden


def start(screen: Screen[Any]) -> None:
    """Label all targets, and go to the one whose letter is typed."""
    screen.app.push_screen(JumpDialog(find_targets(screen)), lambda go: go and go())
