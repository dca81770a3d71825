"""The comparison that one key opens on the table of runs, and which runs it is of."""

from __future__ import annotations

from collections.abc import Iterable

from distrain.tui.base_app import BaseApp
from distrain.tui.data.run_listing import RunListing
from distrain.tui.data.run_rows import BENCH, RunRow
from distrain.tui.keymap import insert_keys
from distrain.tui.screens.run_selection import RunSelection, open_sessions
from distrain.tui.widgets.run_table import RunTable

MOST_COMPARED = 32  # runs


class RunsComparison:
    """Compares the marked runs, the group under the cursor, what the filter shows, or the run under
    the cursor with the pinned one.
    """

    def __init__(
        self, app: BaseApp, listing: RunListing, table: RunTable, selection: RunSelection
    ) -> None:
        self._app = app
        self._listing = listing
        self._table = table
        self._selection = selection

    def open(self, is_filtered: bool) -> None:
        """Open the screen of the comparison, or of a sweep; show a message where there is none."""
        from distrain.runners.runs import Run
        from distrain.tui.screens.compare_screen import CompareScreen

        if sweep := self._sweep(is_filtered):
            self._open_group(sweep)
            return
        rows = self._rows(is_filtered)
        sessions = open_sessions(self._app, rows[:MOST_COMPARED])
        runs = [session for session in sessions if isinstance(session, Run)]
        if len(runs) < len(sessions):
            self._app.refuse("a bench already compares its candidates: open it")
        elif len(rows) > MOST_COMPARED:
            self._app.refuse(
                f"{len(rows):,} runs are too many for one comparison; at most {MOST_COMPARED}"
            )
        elif len(runs) > 1:
            self._app.push_screen(CompareScreen(runs))
        else:
            hint = "mark two or more runs with {runs.mark}; then {runs.compare} compares them"
            self._app.refuse(insert_keys(hint, self._app))

    def _rows(self, is_filtered: bool) -> list[RunRow]:
        """Return the runs to compare."""
        if self._selection.marked:
            return [self._listing.rows[id] for id in self._selection.marked]
        if self._table.group:
            return list(self._table.group.rows)
        if is_filtered:
            return [row for row in self._listing.shown if row.kind != BENCH]
        pinned, row = self._selection.pinned, self._table.row
        return [each for each in (pinned, row if row != pinned else None) if each is not None]

    def _sweep(self, is_filtered: bool) -> str:
        """Return the id of the sweep under the cursor, or of that whose runs the group or the
        filter shows, all of them; "" if other runs are to be compared.
        """
        if self._selection.marked:
            return ""
        if self._table.group or is_filtered:
            shown = self._rows(is_filtered)
            ids = {row.group for row in shown}
            is_whole = _ids(shown) == _ids(self._rows_of(*ids))
            return ids.pop() if len(ids) == 1 and is_whole else ""
        row = self._table.row
        return row.group if row and not self._selection.pinned else ""

    def _rows_of(self, *groups: str) -> list[RunRow]:
        return [row for row in self._listing.rows.values() if row.group in groups]

    def _open_group(self, id: str) -> None:
        """Open the table and the curves of the runs of a sweep."""
        from distrain.runners.groups import Group
        from distrain.runners.runs import Run

        rows = sorted(self._rows_of(id), key=lambda row: (row.created, row.id))
        runs = [each for each in open_sessions(self._app, rows) if isinstance(each, Run)]
        if runs:
            self._app.sessions.open(Group(id, runs))


def _ids(rows: Iterable[RunRow]) -> set[str]:
    return {row.id for row in rows}
