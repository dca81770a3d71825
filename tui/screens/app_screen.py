"""The base of all full screens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, cast, runtime_checkable

from textual import events
from textual.binding import Binding
from textual.reactive import Reactive
from textual.screen import ModalScreen
from textual.widget import Widget

from distrain.tui import keymap
from distrain.tui.base_app import SCREENS_CSS, BaseApp
from distrain.tui.data.copying import CopyValue
from distrain.tui.screens.error_boundary import ErrorBoundary
from distrain.tui.widgets.fitted_screen import FittedScreen
from distrain.tui.widgets.toast_place import follow_layout, place_toasts


@runtime_checkable
class HasValues(Protocol):
    """A pane with values to copy."""

    def copy_values(self) -> Sequence[CopyValue]:
        """Return what can be copied, that under the cursor first."""


class AppScreen(ErrorBoundary, FittedScreen[None]):
    """A screen that survives errors of its handlers. `KEYS` are its groups of the keymap."""

    CSS_PATH: ClassVar[Path | None] = SCREENS_CSS
    KEYS: tuple[str, ...] = ()
    shown_id = ""  # of the run or bench whose screen it is
    ALLOW_IN_MAXIMIZED_VIEW = "KeyBar"
    # Textual repaints the whole screen when the focus moves; the two panes do that themselves.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def _on_mount(self, event: events.Mount) -> None:
        super()._on_mount(event)
        follow_layout(self)

    def on_descendant_focus(self) -> None:
        place_toasts(self)

    def offers(self, binding: Binding) -> bool:
        """Return whether the footer shows a key."""
        is_forbidden = self.distrain.readonly and binding.id in keymap.CHANGES
        return binding.show and not is_forbidden

    def obstacle(self, id: str) -> str:
        """Return why an action of the keymap cannot be done now, or an empty string."""
        is_forbidden = self.distrain.readonly and id in keymap.CHANGES
        return "This app is read-only." if is_forbidden else ""

    def shows(self, id: str) -> bool:
        """Return whether it is the screen of a run or bench, or of several with this one."""
        return id == self.shown_id

    @property
    def is_current(self) -> bool:
        """Return whether this screen is visible: on top, or with only dialogs above it.

        Textual also counts the screen below an opaque one, which would repaint unseen.
        """
        if not super().is_current:
            return False
        stack = self.app.screen_stack
        return all(isinstance(above, ModalScreen) for above in stack[stack.index(self) + 1 :])

    @property
    def is_watched(self) -> bool:
        """Return whether threads read for this screen: it is visible, and the app responds.

        What they read while it does not would fill the memory, and delay the first key after it.
        """
        return self.is_current and self.distrain.is_responsive

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore keys that arrive before the widgets they act on are mounted."""
        return super().check_action(action, parameters) if self.is_mounted else False

    async def action_leave(self) -> None:
        """Restore a maximized pane, or else leave the screen."""
        if self.maximized:
            self.minimize()
        else:
            self.app.pop_screen()

    # --- copying --------------------------------------------------------------------------------

    def copy_values(self) -> Sequence[CopyValue]:
        """Return what can be copied from this screen, the usual value first."""
        return ()

    def action_copy(self) -> None:
        """Copy what is under the cursor or on the screen; ask where there are several values."""
        focused = self.focused
        pane_values = focused.copy_values() if isinstance(focused, HasValues) else ()
        by_text: dict[str, CopyValue] = {}
        for value in (*pane_values, *self.copy_values()):
            by_text.setdefault(value.text, value)
        values = list(by_text.values())
        if not values:
            self.distrain.refuse("nothing to copy here")
        elif len(values) == 1:
            self.distrain.copy(values[0].text, values[0].label)
        else:
            self._ask_what_to_copy(values)

    def _ask_what_to_copy(self, values: Sequence[CopyValue]) -> None:
        from distrain.tui.dialogs.copy import CopyDialog

        def copy(index: str | None) -> None:
            if index is not None:
                value = values[int(index)]
                self.distrain.copy(value.text, value.label)

        self.app.push_screen(CopyDialog(values), copy)

    @property
    def folder(self) -> Path | None:
        """Return the folder of what the screen shows, if it has one."""
        return None

    @property
    def distrain(self) -> BaseApp:
        """Return the app, with its own type."""
        return cast("BaseApp", self.app)
