"""What every full screen of the app is."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.binding import Binding
from textual.reactive import Reactive
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from tui import keymap
from tui.survival import Surviving

if TYPE_CHECKING:
    from tui.app import DistrainApp


# The classes of screens by their width and height in cells, from so many on.
BREAKPOINTS = (
    [(0, "-narrow"), (100, "-normal"), (160, "-wide")],
    [(0, "-short"), (30, "-medium"), (50, "-tall")],
)


class AppScreen(Surviving, Screen[None]):
    """A screen that outlives its errors; `KEYS` are its groups of the keymap."""

    KEYS: tuple[str, ...] = ()
    # Textual's is painted all anew when the focus moves; the panes that it concerns do so anyway.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        # Textual gives a screen its breakpoints once it is styled, and styles it once more.
        for cells, names in zip(self.app.size, BREAKPOINTS, strict=True):
            self.add_class(next(name for least, name in reversed(names) if cells >= least))

    def offers(self, binding: Binding) -> bool:
        """Whether the footer is to show a key."""
        changes = self.distrain.readonly and binding.id in keymap.CHANGES
        return binding.show and not changes

    @property
    def is_current(self) -> bool:
        """Whether this screen can be seen: on top, or with nothing but dialogs above it.

        Textual also counts the one below an opaque screen, which would go on painting unseen.
        """
        if not super().is_current:
            return False
        stack = self.app.screen_stack
        return all(isinstance(above, ModalScreen) for above in stack[stack.index(self) + 1 :])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys may come before there is anything on the screen that they could act on."""
        return super().check_action(action, parameters) if self.is_mounted else False

    async def action_leave(self) -> None:
        """The pane that fills the screen goes first, then the screen."""
        if self.maximized:
            self.minimize()
        else:
            self.app.pop_screen()

    def action_copy(self) -> None:
        self.distrain.refuse("there is nothing to copy here")

    @property
    def distrain(self) -> DistrainApp:
        """The app, with what screens ask of it."""
        return cast("DistrainApp", self.app)
