"""How the table of runs is arranged: its order, its columns and its groups."""

from __future__ import annotations

from collections.abc import Callable

from distrain.tui.base_app import BaseApp
from distrain.tui.data.run_groups import GroupRow
from distrain.tui.data.run_listing import Order, RunListing
from distrain.tui.data.run_rows import EARLIER_SORTS, METRIC, NUMBERS, is_column
from distrain.tui.keymap import insert_keys
from distrain.tui.widgets.run_columns import DEFAULT_LAYOUT, TableLayout, column_title
from distrain.tui.widgets.run_table import RunTable, TableLook


class RunsArrangement:
    """Keeps what the person chooses, most of it in the settings, and then calls `on_change`."""

    def __init__(
        self, app: BaseApp, listing: RunListing, table: RunTable, on_change: Callable[[], None]
    ) -> None:
        self._app = app
        self._listing = listing
        self._table = table
        self._on_change = on_change
        self._layout = DEFAULT_LAYOUT

    @property
    def order(self) -> Order:
        settings = self._app.settings
        by = EARLIER_SORTS.get(settings.sort, settings.sort)
        group_by = settings.group_by if is_column(settings.group_by) else ""
        return Order(by if is_column(by) else "age", settings.descending, group_by)

    def look(self) -> TableLook:
        """Return how the rows that the listing shows now are to look."""
        order = self.order
        chosen = self._app.settings.columns
        names, has_changed = self._listing.columns(chosen, order.by)
        if has_changed:
            self._layout = TableLayout(names, self._listing.shown, bool(chosen), order.by)
        return TableLook(self._layout, *order)

    def _remember(self, **changes: object) -> None:
        self._app.remember(**changes)
        self._on_change()

    # --- the order ------------------------------------------------------------------------------

    def sort_by(self, column: str) -> None:
        """Sort by a column; if the rows are sorted by it, reverse them."""
        if column == self.order.by:
            self.reverse()
        else:
            self._remember(sort=column, descending=_is_greatest_first(column))

    def sort_by_next(self) -> None:
        """Sort by the visible column after the one that sorts the rows now."""
        columns = self._table.sortable
        current = self.order.by
        index = columns.index(current) + 1 if current in columns else 0
        by = columns[index % len(columns)]
        self._remember(sort=by, descending=_is_greatest_first(by))

    def reverse(self) -> None:
        order = self.order
        self._remember(sort=order.by, descending=not order.descending)

    # --- the columns ----------------------------------------------------------------------------

    def choose_columns(self) -> None:
        from distrain.tui.data.column_choice import offered_columns
        from distrain.tui.dialogs.pick_columns import ColumnsDialog

        rows = self._listing.rows.values()
        titles = {name: column_title(name) for name in offered_columns(rows)}
        current = [name for name in self._table.sortable if name != "status"]
        chosen = self._app.settings.columns
        dialog = ColumnsDialog(titles, chosen, current, lambda names: self._remember(columns=names))
        self._app.push_screen(dialog)

    # --- the groups -----------------------------------------------------------------------------

    def choose_groups(self) -> None:
        """Ask by which key the runs are grouped."""
        from distrain.tui.data.column_choice import grouping_keys
        from distrain.tui.dialogs.pick_one import PickOneDialog

        def group(name: str | None) -> None:
            if name is not None:
                self._remember(group_by=name)

        keys = grouping_keys(self._listing.shown)
        options = [("", "no groups"), *((name, column_title(name)) for name in keys)]
        self._app.push_screen(PickOneDialog("Group by", options, self.order.group_by), group)

    def toggle_fold(self, group: GroupRow) -> None:
        self._listing.folded ^= {group.id}
        self._on_change()

    def toggle_folds(self) -> None:
        """Fold all groups, or unfold them if all are folded."""
        groups = {line.id for line in self._table.rows if isinstance(line, GroupRow)}
        if not groups:
            self._app.refuse(insert_keys("{runs.group} groups the runs", self._app))
        is_folded = groups <= self._listing.folded
        self._listing.folded = set() if is_folded else groups
        self._on_change()


def _is_greatest_first(column: str) -> bool:
    """Return whether a column is first sorted from its greatest value down."""
    return column in NUMBERS or column.startswith(METRIC)
