"""The base of all full screens."""

from __future__ import annotations

from typing import cast

from textual.binding import Binding
from textual.reactive import Reactive
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from distrain.tui import keymap
from distrain.tui.base_app import BaseApp
from distrain.tui.screens.error_boundary import ErrorBoundary

# Classes that a screen gets by its width and height, each from so many cells on.
BREAKPOINTS = (
    [(0, "-narrow"), (100, "-normal"), (160, "-wide")],
    [(0, "-short"), (30, "-medium"), (50, "-tall")],
)


class AppScreen(ErrorBoundary, Screen[None]):
    """A screen that survives errors of its handlers. `KEYS` are its groups of the keymap."""

    KEYS: tuple[str, ...] = ()
    ALLOW_IN_MAXIMIZED_VIEW = "KeyBar"
    # Textual repaints the whole screen when the focus moves; the two panes do that themselves.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        # Textual sets these classes only after the first styling, and would style twice.
        for cells, names in zip(self.app.size, BREAKPOINTS, strict=True):
            self.add_class(next(name for least, name in reversed(names) if cells >= least))

    def offers(self, binding: Binding) -> bool:
        """Return whether the footer shows a key."""
        is_forbidden = self.distrain.readonly and binding.id in keymap.CHANGES
        return binding.show and not is_forbidden

    def obstacle(self, id: str) -> str:
        """Return why an action of the keymap cannot be done now, or an empty string."""
        is_forbidden = self.distrain.readonly and id in keymap.CHANGES
        return "This app is read-only." if is_forbidden else ""

    @property
    def is_current(self) -> bool:
        """Return whether this screen is visible: on top, or with only dialogs above it.

        Textual also counts the screen below an opaque one, which would repaint unseen.
        """
        if not super().is_current:
            return False
        stack = self.app.screen_stack
        return all(isinstance(above, ModalScreen) for above in stack[stack.index(self) + 1 :])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore keys that arrive before the widgets they act on are mounted."""
        return super().check_action(action, parameters) if self.is_mounted else False

    async def action_leave(self) -> None:
        """Restore a maximized pane, or else leave the screen."""
        if self.maximized:
            self.minimize()
        else:
            self.app.pop_screen()

    def action_copy(self) -> None:
        self.distrain.refuse("nothing to copy here")

    @property
    def distrain(self) -> BaseApp:
        """Return the app, with its own type."""
        return cast("BaseApp", self.app)
