"""The table of all runs and benches of a runs folder."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import structs
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from distrain.runners.errors import DistrainError
from distrain.runners.session import Session
from distrain.tui import keymap
from distrain.tui.data.copying import CopyValue, flat_values
from distrain.tui.data.run_rows import (
    BENCH,
    EARLIER_SORTS,
    NUMBERS,
    SORTS,
    RunRow,
    filter_rows,
    sort_rows,
)
from distrain.tui.data.run_scanner import FolderChanges, RunScanner
from distrain.tui.keymap import RUNS
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.run_columns import details
from distrain.tui.widgets.run_table import RunTable
from distrain.tui.widgets.runs_header import RunsHeader

POLL_S = 1.0  # between two looks at the folder
PAUSE_S = 0.02  # between batches of rows: leaves the table time to paint
NO_RUNS = "No runs yet. {app.new} launches one."


class RunsScreen(AppScreen):
    """Show the rows that a thread reads from the runs folder."""

    HELP = (
        "Delete and compare act on the marked runs, or without marks on the run under the cursor. "
        "All other keys act on the run under the cursor."
    )
    KEYS = (RUNS,)
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(RUNS),
        keymap.make_hidden_binding("escape", "leave"),
    ]

    class FolderRead(Message):
        """What has changed in the folder; `is_complete` once every run has been read."""

        def __init__(self, changes: FolderChanges, is_complete: bool) -> None:
            super().__init__()
            self.changes = changes
            self.is_complete = is_complete

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, RunRow] = {}
        self._marked: list[str] = []
        self._problems: dict[str, str] = {}
        self.is_complete = False
        self._shown: list[RunRow] = []
        self._wake = threading.Event()
        self._must_reread = threading.Event()
        self._has_left = threading.Event()
        self._is_painted = threading.Event()
        # It reads while the widgets are made, so that the first paint has rows.
        self._follow()

    def compose(self) -> ComposeResult:
        yield RunsHeader()
        yield RunTable()
        yield Static(id="runs-problem")
        yield Static(id="runs-about")
        hint = "words to find · esc clears the filter"
        yield Input(placeholder=hint, id="runs-filter", compact=True)
        yield KeyBar()

    def on_mount(self) -> None:
        self._table = self.query_one(RunTable)
        self._filter = self.query_one("#runs-filter", Input)
        self._filter.display = False
        self._table.focus()

    def on_unmount(self) -> None:
        self._has_left.set()
        self._is_painted.set()
        self._wake.set()

    def on_screen_resume(self) -> None:
        self._reread()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker = get_current_worker()
        scanner = RunScanner(self.distrain.runs_dir)
        is_complete = False
        while not (worker.is_cancelled or self._has_left.is_set()):
            if self.is_current or not is_complete:
                if self._must_reread.is_set():
                    self._must_reread.clear()
                    scanner.reset()
                for changes in scanner.scan(oldest_first=self._oldest_first):
                    self.post_message(self.FolderRead(changes, is_complete))
                    self._is_painted.wait()  # what the screen does not show can wait
                    self._has_left.wait(PAUSE_S)
                if not is_complete:
                    is_complete = True
                    self.post_message(self.FolderRead(FolderChanges(), is_complete))
                    # The screen that is opened next: load it while nobody waits.
                    import_module("distrain.tui.screens.run_screen")
            self._wake.wait(PAUSE_S if scanner.has_more else POLL_S)
            self._wake.clear()
        scanner.close()

    def _reread(self) -> None:
        """Read every run again, after an action of this app on them."""
        self._must_reread.set()
        self._wake.set()

    @property
    def _oldest_first(self) -> bool:
        return self._sorting == ("age", False)

    def on_runs_screen_folder_read(self, event: FolderRead) -> None:
        changes = event.changes
        self._report_ends(changes)
        self.rows.update((row.id, row) for row in changes.rows)
        for id in changes.gone:
            self.rows.pop(id, None)
        self._marked = [id for id in self._marked if id in self.rows]
        if changes.problems is not None:
            self._problems = changes.problems
        if event.is_complete and not self.is_complete:
            self.is_complete = True
            self.distrain.start_garbage_collection()
        self._paint()
        if not self._is_painted.is_set():
            self.call_after_refresh(self._is_painted.set)

    def _report_ends(self, changes: FolderChanges) -> None:
        for row in changes.rows:
            before = self.rows.get(row.id)
            has_ended = before and before.live and not row.live
            if has_ended and (session := self._session(row)):
                self.distrain.sessions.report_end(session)

    # --- what is shown --------------------------------------------------------------------------

    @property
    def _sorting(self) -> tuple[str, bool]:
        settings = self.distrain.settings
        by = EARLIER_SORTS.get(settings.sort, settings.sort)
        if by not in SORTS:
            by = "age"
        return by, settings.descending

    def _paint(self) -> None:
        by, descending = self._sorting
        rows = sort_rows(filter_rows(self.rows.values(), self._filter.value), by, descending)
        self._shown = rows
        empty = ""
        if self.rows:
            empty = "No run contains all of these words. esc clears the filter."
        elif self.is_complete:
            empty = keymap.insert_keys(NO_RUNS, self.app)
        self._table.show(rows, self._marked, by, descending, empty, hold=self.is_complete)
        self._paint_details(self._table.row)
        self._paint_problems()
        header = self.query_one(RunsHeader)
        header.show(list(self.rows.values()), len(rows), len(self._marked), self.distrain.runs_dir)

    def _paint_problems(self) -> None:
        pane = self.query_one("#runs-problem", Static)
        problems = list(self._problems.values())
        pane.display = bool(problems)
        if problems:
            more = f"(and {len(problems) - 1} more) " if len(problems) > 1 else ""
            first = problems[0].replace(f"{self.distrain.runs_dir}/", "")
            pane.update(Text(f" {more}{first}", no_wrap=True, overflow="ellipsis"))

    def on_run_table_pointed(self, event: RunTable.Pointed) -> None:
        self._paint_details(event.row)

    def _paint_details(self, row: RunRow | None) -> None:
        self.query_one("#runs-about", Static).update(details(row, self.has_class("-short")))

    def on_resize(self) -> None:
        if self.is_mounted:
            self._paint()

    # --- the table ------------------------------------------------------------------------------

    def action_order(self) -> None:
        columns = self._table.sortable
        current = self._sorting[0]
        index = columns.index(current) + 1 if current in columns else 0
        by = columns[index % len(columns)]
        self._sort(by, by in NUMBERS)

    def action_reverse(self) -> None:
        self._sort(self._sorting[0], not self._sorting[1])

    def on_run_table_sorted(self, event: RunTable.Sorted) -> None:
        by, descending = self._sorting
        if event.by == by:
            self._sort(by, not descending)
        else:
            self._sort(event.by, event.by in NUMBERS)

    def _sort(self, by: str, descending: bool) -> None:
        self.distrain.remember(sort=by, descending=descending)
        self._paint()

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    async def action_leave(self) -> None:
        """Clear the filter first, then the marks."""
        if self.maximized:
            self.minimize()
        elif self._filter.display:
            self._filter.value = ""
            self._filter.display = False
            self._table.focus()
        else:
            self._marked = []
        self._paint()

    def on_input_changed(self) -> None:
        self._paint()

    def on_input_submitted(self) -> None:
        self._filter.display = bool(self._filter.value)
        self._table.focus()

    def on_key(self, event: Any) -> None:
        if event.key in ("down", "up") and self.focused is self._filter:
            self._table.focus()

    # --- the runs -------------------------------------------------------------------------------

    def action_mark(self) -> None:
        row = self._table.row
        if row is None:
            return
        if row.id in self._marked:
            self._marked.remove(row.id)
        else:
            self._marked.append(row.id)
        self._table.action_move(1)
        self._paint()

    def _current(self) -> Session | None:
        """Return the run or bench under the cursor; say so where there is none."""
        row = self._table.row
        if row is None:
            self.distrain.refuse("no run under the cursor")
            return None
        return self._session(row)

    def _session(self, row: RunRow) -> Session | None:
        """Return the run or bench of a row; say why where it cannot be read."""
        folder = self.distrain.runs_dir / row.id
        try:
            if row.kind == BENCH:
                from distrain.runners.bench import Bench

                return Bench(folder)
            from distrain.runners.records.reader import Record
            from distrain.runners.runs import Run

            return Run(Record(folder))
        except DistrainError as error:
            self.distrain.refuse(str(error))
            return None

    def _selected(self) -> list[Session]:
        """Return the marked runs that the filter shows, else the one under the cursor."""
        marked = [row for row in self._shown if row.id in self._marked]
        if not marked:
            current = self._current()
            return [current] if current else []
        return self._sessions(marked)

    def _sessions(self, rows: Iterable[RunRow]) -> list[Session]:
        return [session for row in rows if (session := self._session(row))]

    def obstacle(self, id: str) -> str:
        row = self._table.row
        if id in ("runs.stop", "runs.resume", "runs.delete") and row and not self._marked:
            if id == "runs.stop" and not row.live:
                return "The run has ended."
            if id != "runs.stop" and row.live:
                return "The run has not ended."
        if id != "runs.filter" and id in keymap.BY_ID and row is None and id.startswith(f"{RUNS}."):
            return "There is no run under the cursor."
        return super().obstacle(id)

    def action_open(self) -> None:
        if session := self._current():
            self.distrain.sessions.open(session)

    def on_run_table_opened(self, event: RunTable.Opened) -> None:
        if session := self._session(event.row):
            self.distrain.sessions.open(session)

    def action_compare(self) -> None:
        from distrain.runners.runs import Run
        from distrain.tui.screens.compare_screen import CompareScreen

        rows = [self.rows[id] for id in self._marked]
        if not rows and self._table.row:
            rows = [self._table.row]
        sessions = self._sessions(rows)
        runs = [session for session in sessions if isinstance(session, Run)]
        if len(runs) < len(sessions):
            self.distrain.refuse("a bench already compares its candidates: open it")
        elif len(runs) > 1:
            self.app.push_screen(CompareScreen(runs))
        else:
            hint = "mark two or more runs with {runs.mark}; then {runs.compare} compares them"
            self.distrain.refuse(keymap.insert_keys(hint, self.app))

    def action_stop(self) -> None:
        if session := self._current():
            self.distrain.sessions.stop(session)

    def action_rerun(self) -> None:
        if session := self._current():
            self.distrain.sessions.rerun(session)

    def action_resume(self) -> None:
        if session := self._current():
            self.distrain.sessions.resume(session)

    def action_edit(self) -> None:
        if session := self._current():
            self.distrain.sessions.edit(session, self._reread)

    def action_pin(self) -> None:
        if session := self._current():
            self.distrain.sessions.toggle_pin(session)
            self._reread()

    def action_delete(self) -> None:
        if sessions := self._selected():
            self.distrain.sessions.delete(sessions, self._reread)

    def action_undo(self) -> None:
        self.distrain.sessions.restore(self._reread)

    def copy_values(self) -> list[CopyValue]:
        row = self._table.row
        if row is None:
            return []
        values = [CopyValue("id", row.id), CopyValue("folder", str(self.folder))]
        return values + [each for each in flat_values(structs.asdict(row)) if each.label != "id"]

    @property
    def folder(self) -> Path | None:
        row = self._table.row
        return self.distrain.runs_dir / row.id if row else None
