"""The choice and the order of the columns of the table of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from distrain.tui.dialogs.search_list import SearchListDialog

AUTOMATIC = ""


class ColumnsDialog(SearchListDialog[None]):
    """List all columns with marks at the chosen ones, which come first and in their order.

    `titles` are those of all columns, `current` the columns that are visible. Each change is passed
    to `on_change` at once; no columns mean that the app chooses. What is typed selects columns that
    have all of its words.
    """

    BINDINGS = [  # noqa: RUF012
        Binding("shift+up", "shift(-1)", "Move up", show=False),
        Binding("shift+down", "shift(1)", "Move down", show=False),
    ]

    def __init__(
        self,
        titles: Mapping[str, str],
        chosen: Sequence[str],
        current: Sequence[str],
        on_change: Callable[[list[str]], None],
    ) -> None:
        super().__init__()
        self._titles = titles
        self._chosen = [name for name in chosen if name in titles]
        self._current = [name for name in current if name in titles]
        self._on_change = on_change

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label("Columns", classes="dialog-title")
            yield Input(placeholder=f"search {len(self._titles):,} columns")
            yield OptionList(markup=False)
            yield Label("enter adds or removes · shift+↑ ↓ moves · esc closes", classes="quiet")

    def on_mount(self) -> None:
        self._list()

    def _list(self, highlighted: str = AUTOMATIC) -> None:
        words = self.query_one(Input).value.casefold().split()
        shown = self._chosen or self._current
        names = [*shown, *(name for name in self._titles if name not in shown)]
        found = [
            name for name in names if all(word in self._titles[name].casefold() for word in words)
        ]
        options = self.query_one(OptionList)
        options.clear_options()
        if not words:
            mark = "✓" if not self._chosen else " "
            options.add_option(Option(f"{mark} automatic: where the runs differ", id=AUTOMATIC))
        for name in found:
            mark = "✓" if name in self._chosen else "·" if name in shown else " "
            options.add_option(Option(f"{mark} {self._titles[name]}", id=name))
        ids = [option.id for option in options.options]
        if ids:
            options.highlighted = ids.index(highlighted) if highlighted in ids else 0

    @property
    def _highlighted(self) -> str | None:
        options = self.query_one(OptionList)
        index = options.highlighted
        return None if index is None else options.get_option_at_index(index).id

    def on_input_changed(self) -> None:
        self._list()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        name = event.option_id or AUTOMATIC
        if name == AUTOMATIC:
            self._choose([], AUTOMATIC)
            return
        chosen = self._chosen or self._current
        if name in chosen:
            self._choose([each for each in chosen if each != name], name)
        else:
            self._choose([*chosen[:1], name, *chosen[1:]], name)  # the last ones may not fit

    def action_shift(self, by: int) -> None:
        """Move the highlighted column among the chosen ones."""
        name = self._highlighted
        chosen = [*(self._chosen or self._current)]
        if name not in chosen:
            return
        at = chosen.index(name)
        chosen.insert(max(at + by, 0), chosen.pop(at))
        self._choose(chosen, name)

    def _choose(self, chosen: list[str], highlighted: str) -> None:
        self._chosen = chosen
        self._on_change(chosen)
        self._list(highlighted)
