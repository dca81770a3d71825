"""The help: what the focused pane shows, and the keys that work, from the keymap."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from distrain.tui import keymap
from distrain.tui.dialogs.dialog import Dialog


class HelpDialog(Dialog[None]):
    """Show the help texts of the focused pane and its screen (`HELP`), and the keys (`KEYS`)."""

    def __init__(self, screen: Screen[Any], focused: Widget | None) -> None:
        super().__init__()
        self._groups = (*getattr(screen, "KEYS", ()), keymap.EVERYWHERE)
        self._texts = [text for text in (getattr(focused, "HELP", ""), screen.HELP) if text]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog wide"):
            for text in self._texts:
                yield Static(keymap.insert_keys(text, self.app), classes="help-text", markup=False)
            for title, keys in keymap.group_by_title(self._groups).items():
                yield Static(title, classes="dialog-title")
                yield Static(self._table(keys))

    def _table(self, keys: list[keymap.Key]) -> Table:
        table = Table.grid(padding=(0, 2))
        for key in keys:
            shown = self.app.key(key.id)  # type: ignore[attr-defined]
            table.add_row(Text(shown, "bold"), key.label, Text(key.help, "dim"))
        return table
