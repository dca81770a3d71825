"""Pick a preset and launch it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Footer, Static

from tui import keymap
from tui.keymap import LAUNCH
from tui.screens.base import AppScreen


class LaunchScreen(AppScreen):
    KEYS = (LAUNCH,)
    BINDINGS = keymap.bindings(LAUNCH)  # type: ignore[assignment]

    def compose(self) -> ComposeResult:
        yield Static("launch")
        yield Footer()
