"""The base of dialogs with a list of options and a line that searches in it."""

from __future__ import annotations

from typing import TypeVar

from textual import events
from textual.widgets import Input, OptionList

from distrain.tui.dialogs.dialog import Dialog

T = TypeVar("T")
KEYS_OF_THE_LIST = {
    "up": "cursor_up",
    "down": "cursor_down",
    "pageup": "page_up",
    "pagedown": "page_down",
}


class SearchListDialog(Dialog[T]):
    """Lets keys move in the list while the search has the focus; enter selects an option."""

    def on_input_submitted(self) -> None:
        self.query_one(OptionList).action_select()

    async def on_key(self, event: events.Key) -> None:
        """Let keys that do not edit the search move in the list."""
        action = KEYS_OF_THE_LIST.get(event.key)
        if action is not None and isinstance(self.focused, Input):
            await self.query_one(OptionList).run_action(action)
