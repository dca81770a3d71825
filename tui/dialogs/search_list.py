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
        options = self.query_one(OptionList)
        has_room = bool(options.scrollable_content_region)  # Textual has no lines of it otherwise
        if action is not None and has_room and isinstance(self.focused, Input):
            await options.run_action(action)
