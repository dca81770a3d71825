"""The palette: everything that can be done on the screen now, to search and choose from."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from distrain.tui.data.palette import PaletteEntry, PaletteLine, find_lines
from distrain.tui.dialogs.search_list import SearchListDialog

LABEL = 22  # cells of the name of an action or theme
MARGIN = 3  # of an option at its left and right, and the scroll bar


class PaletteDialog(SearchListDialog[str]):
    """Return the id of an entry. Entries that cannot be chosen say why and are skipped."""

    def __init__(self, entries: Sequence[PaletteEntry]) -> None:
        super().__init__()
        self._entries = entries

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide palette"):
            yield Input(placeholder="search actions and themes · esc closes", compact=True)
            yield OptionList(markup=False)

    def on_mount(self) -> None:
        self._show("")
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show, self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, query: str) -> None:
        options = self.query_one(OptionList)
        lines = find_lines(self._entries, query)
        width = options.size.width - MARGIN
        options.clear_options()
        options.add_options(self._option(line, width, bool(query.strip())) for line in lines)
        if not lines:
            options.add_option(Option(Text("no action or theme matches", "dim"), disabled=True))
        if query.strip():  # Enter in a palette that has just opened does nothing
            options.action_first()

    def _option(self, line: PaletteLine, width: int, with_group: bool) -> Option:
        entry = line.entry
        if entry is None:
            return Option(Text(line.heading, "bold"), disabled=True)
        about = entry.obstacle or entry.help
        if with_group:
            about = f"{entry.group}: {about}"
        label = Text(f" {entry.label}", no_wrap=True)
        label.truncate(LABEL, overflow="ellipsis", pad=True)
        description = Text(f" {about}", "dim", no_wrap=True)
        description.truncate(
            max(width - LABEL - len(entry.keys) - 1, 0), overflow="ellipsis", pad=True
        )
        text = Text.assemble(label, description, " ", (entry.keys, "bold"))
        return Option(text, id=entry.id, disabled=bool(entry.obstacle))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
