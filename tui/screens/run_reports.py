"""Messages on runs at the moment when they end or leave the queue, whichever screen is shown."""

from __future__ import annotations

from collections.abc import Mapping

from distrain.tui.data.run_rows import RunRow
from distrain.tui.data.run_scanner import FolderChanges
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.screens.run_selection import open_session

QUEUED = "queued"


class RunReports:
    """Reports what changes in a folder, and keeps the app's history of it."""

    def __init__(self, screen: AppScreen) -> None:
        self._screen = screen

    def report(self, before: Mapping[str, RunRow], changes: FolderChanges) -> None:
        """Report what has just happened to live runs; `before` are the rows before the changes."""
        app = self._screen.distrain
        unseen = app.history.unseen
        app.history.update(changes.rows, changes.gone)
        if app.history.unseen != unseen:
            app.history_changed.publish(None)
        happened = []
        for row in changes.rows:
            known = before.get(row.id)
            if known is not None and known.live and self._report_row(known, row):
                happened.append(row)
        if happened and not unseen and all(map(self._is_watched, happened)):
            app.see_history(max(row.ended or row.started or 0.0 for row in happened))

    def _report_row(self, before: RunRow, row: RunRow) -> bool:
        if not row.live:
            if session := open_session(self._screen.distrain, row):
                self._screen.distrain.sessions.report_end(session, row.ended)
            return True
        has_left = before.status == QUEUED != row.status
        if has_left:
            self._screen.notify(f"{row.name or row.short} started from the queue")
        return has_left

    def _is_watched(self, row: RunRow) -> bool:
        """Return whether the table of runs, or a screen of the run, is shown."""
        shown = self._screen.distrain.screen
        return self._screen.is_current or (isinstance(shown, AppScreen) and shown.shows(row.id))
