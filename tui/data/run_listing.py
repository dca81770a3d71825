"""The rows of the runs table: all of them, and how those are shown that match the filter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from distrain.tui.data.run_groups import TableRow, group_rows
from distrain.tui.data.run_rows import RunRow, sort_rows

if TYPE_CHECKING:
    from distrain.tui.data.row_filter import RowFilter

FIRST_COLUMNS = ("name", "strategy", "progress", "samples/s", "metric", "duration", "age")


class Order(NamedTuple):
    """By which column rows are sorted, and by which they are grouped ("" for none)."""

    by: str = "age"
    descending: bool = True
    group_by: str = ""


class RunListing:
    """Holds the rows as they are read, and arranges them.

    `is_complete` once every run has been read; configs of many runs are read later. `problem` says
    what is wrong with the filter.
    """

    def __init__(self) -> None:
        self.rows: dict[str, RunRow] = {}
        self.problem = ""
        self.folded: set[str] = set()
        self.is_complete = False
        self.shown: list[RunRow] = []
        self._filter: RowFilter | None = None
        self._columns: tuple[object, list[str]] = (None, [*FIRST_COLUMNS])

    def arrange(self, text: str, order: Order) -> list[TableRow]:
        """Return the lines of the table: the rows that match a filter, sorted and in groups.

        `shown` are these rows without the headers of groups, also of those that are folded.
        """
        self.shown = sort_rows(self._select(text), order.by, order.descending)
        if not order.group_by:
            return [*self.shown]
        return group_rows(self.shown, order.group_by, self.folded)

    def _select(self, text: str) -> Collection[RunRow]:
        if not text.strip() and self._filter is None:
            return self.rows.values()
        if self._filter is None:
            from distrain.tui.data.row_filter import RowFilter  # not needed for the first paint

            self._filter = RowFilter()
        found = self._filter.select(self.rows.values(), text)
        self.problem = self._filter.problem
        return found

    def columns(self, chosen: Sequence[str], by: str) -> tuple[list[str], bool]:
        """Return the columns for the rows that are shown, and whether they have changed.

        Without `chosen` they follow from the rows; while configs are still read they stay. The
        column `by` that sorts the rows is always among them.
        """
        signature = by, self._signature(chosen)
        if signature == self._columns[0]:
            return self._columns[1], False
        names = [*chosen] if chosen else self._automatic()
        if by not in (*names, "status"):
            names.append(by)
        self._columns = signature, names
        return names, True

    def _signature(self, chosen: Sequence[str]) -> object:
        """Return what the columns depend on."""
        has_details = all(row.detailed for row in self.shown)
        if not (self.is_complete and has_details):
            return self.is_complete, [*chosen]
        facts = [
            (id(row.config.positions), id(row.config), row.tags, not row.notes, row.metric)
            for row in self.shown
        ]
        return [*chosen], facts

    def _automatic(self) -> list[str]:
        if not self.is_complete:
            return [*FIRST_COLUMNS]
        from distrain.tui.data.column_choice import automatic_columns

        return automatic_columns(self.shown)
