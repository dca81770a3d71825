"""What every full screen of the app is."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from tui.survival import Surviving

if TYPE_CHECKING:
    from tui.app import DistrainApp


class AppScreen(Surviving, Screen[None]):
    """A screen that outlives its errors; `KEYS` are its groups of the keymap."""

    KEYS: tuple[str, ...] = ()

    def action_copy(self) -> None:
        self.distrain.refuse("there is nothing to copy here")

    @property
    def distrain(self) -> DistrainApp:
        """The app, with what screens ask of it."""
        return cast("DistrainApp", self.app)
