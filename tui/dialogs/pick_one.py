"""A list to pick one option from."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from distrain.tui.dialogs.search_list import SearchListDialog

SEARCHED_FROM = 24  # options


class PickOneDialog(SearchListDialog[str]):
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

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
