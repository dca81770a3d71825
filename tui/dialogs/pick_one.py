"""A list to pick one option from."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from distrain.tui.dialogs.dialog import Dialog


class PickOneDialog(Dialog[str]):
    """Return the id of one option. `options` are (id, text); the cursor starts on `current`."""

    def __init__(self, title: str, options: Sequence[tuple[str, str]], current: str = "") -> None:
        super().__init__()
        self._title = title
        self._options = options
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield OptionList(*(Option(text, id=name) for name, text in self._options))

    def on_mount(self) -> None:
        names = [name for name, _ in self._options]
        if self._current in names:
            self.query_one(OptionList).highlighted = names.index(self._current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
