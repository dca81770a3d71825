"""Which runs of the table an action is about: marked ones, a group, or that under the cursor."""

from __future__ import annotations

from collections.abc import Iterable

from distrain.runners.errors import DistrainError
from distrain.runners.session import Session
from distrain.tui.base_app import BaseApp
from distrain.tui.data.run_groups import GroupRow
from distrain.tui.data.run_listing import RunListing
from distrain.tui.data.run_rows import BENCH, RunRow
from distrain.tui.widgets.run_table import RunTable


class RunSelection:
    """Keeps the marks, and opens the records of the runs that are selected."""

    def __init__(self, app: BaseApp, listing: RunListing, table: RunTable) -> None:
        self._app = app
        self._listing = listing
        self._table = table
        self.marked: list[str] = []

    def toggle_mark(self) -> None:
        """Mark the run under the cursor, or all runs of the group, or unmark them."""
        line = self._table.line
        if line is None:
            return
        ids = [row.id for row in line.rows] if isinstance(line, GroupRow) else [line.id]
        if all(id in self.marked for id in ids):
            self.marked = [id for id in self.marked if id not in ids]
        else:
            self.marked += [id for id in ids if id not in self.marked]
        self._table.action_move(1)

    def forget_missing(self) -> None:
        """Remove the marks of runs that are gone."""
        self.marked = [id for id in self.marked if id in self._listing.rows]

    @property
    def pinned(self) -> RunRow | None:
        """The newest pinned run."""
        pinned = [row for row in self._listing.rows.values() if row.pinned and row.kind != BENCH]
        return max(pinned, key=lambda row: row.created, default=None)

    def current(self) -> Session | None:
        """Return the run or bench under the cursor; show a message where there is none."""
        row = self._table.row
        if row is None:
            self._app.refuse("no run under the cursor")
            return None
        return open_session(self._app, row)

    def sessions(self) -> list[Session]:
        """Return the marked runs that the filter shows, else those of the group or the one under
        the cursor. Show a message, and return none, where the filter hides all marked runs.
        """
        marked = [row for row in self._listing.shown if row.id in self.marked]
        if self.marked and not marked:
            self._app.refuse("the filter hides the marked runs; esc clears it, esc again the marks")
            return []
        if not marked and self._table.group:
            return open_sessions(self._app, self._table.group.rows)
        if not marked:
            current = self.current()
            return [current] if current else []
        return open_sessions(self._app, marked)


def open_session(app: BaseApp, row: RunRow) -> Session | None:
    """Return the run or bench of a row; show a message where it cannot be read."""
    folder = app.runs_dir / row.id
    try:
        if row.kind == BENCH:
            from distrain.runners.bench import Bench

            return Bench(folder)
        from distrain.runners.records.reader import Record
        from distrain.runners.runs import Run

        return Run(Record(folder))
    except DistrainError as error:
        app.refuse(str(error))
        return None


def open_sessions(app: BaseApp, rows: Iterable[RunRow]) -> list[Session]:
    """Return the runs and benches of rows, without those that cannot be read."""
    return [session for row in rows if (session := open_session(app, row))]
