"""All runs in a table."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Footer, Static

from tui import keymap
from tui.keymap import RUNS
from tui.screens.base import AppScreen


class RunsScreen(AppScreen):
    KEYS = (RUNS,)
    BINDINGS = keymap.bindings(RUNS)  # type: ignore[assignment]

    def compose(self) -> ComposeResult:
        yield Static("runs")
        yield Footer()
