"""A list to pick one option from."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from distrain.tui.dialogs.dialog import Dialog

SEARCHED_FROM = 24  # options
KEYS_OF_THE_LIST = {
    "up": "cursor_up",
    "down": "cursor_down",
    "pageup": "page_up",
    "pagedown": "page_down",
}


class PickOneDialog(Dialog[str]):
    """Return the id of one option. `options` are (id, text); the cursor starts on `current`.

    Where there are many, what is typed selects those with all of its words.
    """

    def __init__(self, heading: str, options: Sequence[tuple[str, str]], current: str = "") -> None:
        super().__init__(heading)
        self._options = options
        self._current = current

    def compose_body(self) -> ComposeResult:
        if len(self._options) >= SEARCHED_FROM:
            yield Input(placeholder=f"search {len(self._options):,} names")
        yield OptionList(markup=False)

    def on_mount(self) -> None:
        self._show("")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, search: str) -> None:
        """List the options whose text has all words of a search."""
        words = search.casefold().split()
        found = [
            (name, text)
            for name, text in self._options
            if all(word in text.casefold() for word in words)
        ]
        names = [name for name, _ in found]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(text, id=name) for name, text in found)
        if names:
            options.highlighted = names.index(self._current) if self._current in names else 0

    def on_input_submitted(self) -> None:
        self.query_one(OptionList).action_select()

    async def on_key(self, event: events.Key) -> None:
        """Let keys that do not edit a search move in the list."""
        action = KEYS_OF_THE_LIST.get(event.key)
        if action is not None and isinstance(self.focused, Input):
            await self.query_one(OptionList).run_action(action)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
