"""The table of all runs and benches of a runs folder."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from msgspec import structs
from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static
from textual.worker import get_current_worker

from distrain.runners.errors import DistrainError
from distrain.runners.session import Session
from distrain.tui import keymap
from distrain.tui.data.copying import CopyValue, flat_values
from distrain.tui.data.history import describe_unseen
from distrain.tui.data.run_groups import GroupRow, TableRow
from distrain.tui.data.run_listing import Order, RunListing
from distrain.tui.data.run_rows import BENCH, EARLIER_SORTS, METRIC, NUMBERS, RunRow, is_column
from distrain.tui.data.run_scanner import FolderChanges, RunScanner
from distrain.tui.keymap import RUNS
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.screens.run_reports import RunReports
from distrain.tui.screens.runs_filter import RunsFilter
from distrain.tui.widgets.filter_input import FilterInput
from distrain.tui.widgets.group_line import group_line
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.run_columns import DEFAULT_LAYOUT, TableLayout, column_title
from distrain.tui.widgets.run_details import details
from distrain.tui.widgets.run_table import RunTable, TableLook
from distrain.tui.widgets.runs_header import RunsHeader

if TYPE_CHECKING:
    from distrain.tui.screens.selected_run import GlanceRead, SelectedRun

POLL_S = 1.0  # between two looks at the folder
FIRST_ROWS_S = 0.2  # the longest time that the first paint waits for rows
PAUSE_S = 0.02  # between batches of rows: leaves the table time to paint
NO_RUNS = "No runs yet. {app.new} launches one."
NO_MATCH = "No run matches the filter. esc clears it."
MOST_COMPARED = 32  # runs, by one key
ACTIONS_OF_LETTERS = {key.action for key in keymap.KEYMAP if key.group == RUNS} - {"save"}
# What the actions on a run, unlike those on the table, need under the cursor.
OF_A_RUN = ("open", "mark", "rerun", "resume", "stop", "edit", "delete", "pin")


class RunsScreen(AppScreen):
    """Show the rows that a thread reads from the runs folder."""

    HELP = (
        "Delete and compare act on the marked runs. Without marks, {runs.delete} deletes the run "
        "or the group under the cursor, and {runs.compare} compares the group under the cursor, "
        "else the runs that match the filter, else the run under the cursor with the pinned one. "
        "All other keys act on the run under the cursor. A filter is "
        "words and conditions: lr>0.1 status:failed -tag:old top1>=98%."
    )
    CSS_PATH = None  # in that of the app, so that the first paint parses little
    KEYS = (RUNS,)
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(RUNS),
        keymap.make_hidden_binding("escape", "leave"),
    ]

    class FolderRead(Message):
        """There are changes to take from the thread that reads the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.listing = RunListing()
        self._layout = DEFAULT_LAYOUT
        self._marked: list[str] = []
        self._problems: dict[str, str] = {}
        self._selected_run: SelectedRun | None = None
        self._wake = threading.Event()
        self._must_reread = threading.Event()
        self._has_left = threading.Event()
        self._is_painted = threading.Event()
        # From the thread: changes, and whether every run has been read.
        self._unread: SimpleQueue[tuple[FolderChanges, bool]] = SimpleQueue()
        self._reports = RunReports(self, self._session)
        # It reads while the widgets are made, so that the first paint has rows.
        self._follow()

    @property
    def rows(self) -> dict[str, RunRow]:
        return self.listing.rows

    @property
    def is_complete(self) -> bool:
        return self.listing.is_complete

    @property
    def shows_all(self) -> bool:
        """Return whether every run was read, and the preview of the one under the cursor."""
        preview = self._selected_run
        has_preview = preview is not None and preview.is_current
        return has_preview and all(row.detailed for row in self.rows.values())

    def compose(self) -> ComposeResult:
        yield RunsHeader()
        with Horizontal(id="runs-body"):
            yield RunTable(self.distrain.run_marks)
        yield Static(id="runs-about")
        yield Static(id="runs-note")
        yield KeyBar()

    def on_mount(self) -> None:
        self._table = self.query_one(RunTable)
        self._filter = RunsFilter(self.distrain, self.query_one("#runs-note", Static), self._paint)
        self._table.focus()
        # Nothing is painted yet. An empty table first and the rows then would take longer.
        with suppress(Empty):
            self._accept(*self._unread.get(timeout=FIRST_ROWS_S))

    def on_unmount(self) -> None:
        self._has_left.set()
        self._is_painted.set()
        self._wake.set()

    def on_screen_resume(self) -> None:
        self._reread()
        if self.is_complete:
            self._paint()

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
                    self._pass_on(changes, is_complete)
                    self._is_painted.wait()  # what the screen does not show can wait
                    self._has_left.wait(PAUSE_S)
                if not is_complete:
                    is_complete = True
                    self._pass_on(FolderChanges(), is_complete)
                    # The screen that is opened next: load it while nobody waits.
                    import_module("distrain.tui.screens.run_screen")
            else:
                for changes in scanner.scan_states():
                    self._pass_on(changes, is_complete)
            has_more = scanner.has_more and self.is_current
            self._wake.wait(PAUSE_S if has_more else POLL_S)
            self._wake.clear()
        scanner.close()

    def _pass_on(self, changes: FolderChanges, is_complete: bool) -> None:
        self._unread.put((changes, is_complete))
        self.post_message(self.FolderRead())

    def _reread(self) -> None:
        """Read every run again, after an action of this app on them."""
        self._must_reread.set()
        self._wake.set()

    @property
    def _oldest_first(self) -> bool:
        return self._order[:2] == ("age", False)

    def on_runs_screen_folder_read(self) -> None:
        while not self._unread.empty():
            self._accept(*self._unread.get())

    def _accept(self, changes: FolderChanges, is_complete: bool) -> None:
        self._reports.report(self.rows, changes)
        self.rows.update((row.id, row) for row in changes.rows)
        for id in changes.gone:
            self.rows.pop(id, None)
        self._marked = [id for id in self._marked if id in self.rows]
        if changes.problems is not None:
            self._problems = changes.problems
        if is_complete and not self.is_complete:
            self.listing.is_complete = True
            self.distrain.start_garbage_collection()
            self.distrain.read_screens_css()
            self._add_preview()
            self.distrain.see_history(self.distrain.history.seen_until)  # known from now on
        if self.is_current or not self._is_painted.is_set():
            self._paint()
        if not self._is_painted.is_set():
            self.call_after_refresh(self._is_painted.set)

    def _add_preview(self) -> None:
        from distrain.tui.screens.selected_run import SelectedRun  # once the table is painted

        body = self.query_one("#runs-body", Horizontal)
        self._selected_run = SelectedRun(self, body, self.distrain)
        self._selected_run.resize(self.distrain.settings.preview)

    # --- what is shown --------------------------------------------------------------------------

    @property
    def _order(self) -> Order:
        settings = self.distrain.settings
        by = EARLIER_SORTS.get(settings.sort, settings.sort)
        group_by = settings.group_by if is_column(settings.group_by) else ""
        return Order(by if is_column(by) else "age", settings.descending, group_by)

    def _paint(self) -> None:
        order = self._order
        lines = self.listing.arrange(self._filter.text, order)
        chosen = self.distrain.settings.columns
        names, has_changed = self.listing.columns(chosen, order.by)
        if has_changed:
            self._layout = TableLayout(names, self.listing.shown, bool(chosen), order.by)
        empty = ""
        if self.rows:
            empty = NO_MATCH
        elif self.is_complete:
            empty = keymap.insert_keys(NO_RUNS, self.app)
        look = TableLook(self._layout, *order)
        self._table.show(lines, self._marked, look, empty, hold=self.is_complete)
        self._paint_selected(self._table.line)
        self._filter.explain(self.listing.problem, self.rows.values(), self._problem)
        self.query_one(RunsHeader).show(
            list(self.rows.values()),
            len(self.listing.shown),
            len(self._marked),
            self.distrain.runs_dir,
            [
                keymap.insert_keys(describe_unseen(self.distrain.history.unseen), self.app),
                f"filter {self._filter.name}" if self._filter.name else "",
                f"by {column_title(order.group_by)}" if order.group_by else "",
            ],
        )

    @property
    def _problem(self) -> str:
        """Return which folder cannot be read, and how many others."""
        problems = list(self._problems.values())
        if not problems:
            return ""
        more = f"(and {len(problems) - 1} more) " if len(problems) > 1 else ""
        return more + problems[0].replace(f"{self.distrain.runs_dir}/", "")

    def on_run_table_pointed(self, event: RunTable.Pointed) -> None:
        self._paint_selected(event.row)

    def _paint_selected(self, line: TableRow | None) -> None:
        about = self.query_one("#runs-about", Static)
        if isinstance(line, GroupRow):
            about.update(group_line(line, self._order.group_by))
        else:
            about.update(details(line, self.has_class("-short")))
        if self._selected_run is not None:
            self._selected_run.show(line, self._pinned)

    @property
    def _pinned(self) -> RunRow | None:
        """Return the newest pinned run."""
        pinned = [row for row in self.rows.values() if row.pinned and row.kind != BENCH]
        return max(pinned, key=lambda row: row.created, default=None)

    def on_glance_read(self, event: GlanceRead) -> None:
        if self._selected_run is not None:
            self._selected_run.accept(event)

    def on_resize(self) -> None:
        if self.is_mounted:
            if self._selected_run is not None:
                self._selected_run.resize(self.distrain.settings.preview)
            self._paint()

    # --- the table ------------------------------------------------------------------------------

    def action_order(self) -> None:
        columns = self._table.sortable
        current = self._order.by
        index = columns.index(current) + 1 if current in columns else 0
        by = columns[index % len(columns)]
        self._sort(by, _is_greatest_first(by))

    def action_reverse(self) -> None:
        self._sort(self._order.by, not self._order.descending)

    def on_run_table_sorted(self, event: RunTable.Sorted) -> None:
        if event.by == self._order.by:
            self.action_reverse()
        else:
            self._sort(event.by, _is_greatest_first(event.by))

    def _sort(self, by: str, descending: bool) -> None:
        self.distrain.remember(sort=by, descending=descending)
        self._paint()

    def action_columns(self) -> None:
        from distrain.tui.data.column_choice import offered_columns
        from distrain.tui.dialogs.pick_columns import ColumnsDialog

        def change(columns: list[str]) -> None:
            self.distrain.remember(columns=columns)
            self._paint()

        chosen = self.distrain.settings.columns
        titles = {name: column_title(name) for name in offered_columns(self.rows.values())}
        current = [name for name in self._table.sortable if name != "status"]
        self.app.push_screen(ColumnsDialog(titles, chosen, current, change))

    def action_group(self) -> None:
        from distrain.tui.data.column_choice import grouping_keys
        from distrain.tui.dialogs.pick_one import PickOneDialog

        def group(name: str | None) -> None:
            if name is not None:
                self.distrain.remember(group_by=name)
                self._paint()

        keys = grouping_keys(self.listing.shown)
        options = [("", "no groups"), *((name, column_title(name)) for name in keys)]
        dialog = PickOneDialog("Group by", options, self._order.group_by)
        self.app.push_screen(dialog, group)

    def action_folds(self) -> None:
        """Fold all groups, or unfold them if all are folded."""
        lines = self.listing.arrange(self._filter.text, self._order)
        groups = {line.id for line in lines if isinstance(line, GroupRow)}
        if not groups:
            self.distrain.refuse(keymap.insert_keys("{runs.group} groups the runs", self.app))
        is_folded = groups <= self.listing.folded
        self.listing.folded = set() if is_folded else groups
        self._paint()

    def action_preview(self) -> None:
        self.distrain.remember(preview=not self.distrain.settings.preview)
        if self._selected_run is not None:
            self._selected_run.resize(self.distrain.settings.preview)
            self.call_after_refresh(self._paint)

    # --- the filter -----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let letters that were typed while the field took the focus be text, not actions."""
        if isinstance(self.focused, FilterInput) and action in ACTIONS_OF_LETTERS:
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        self._filter.open()
        self.call_after_refresh(self._paint)

    def action_filters(self) -> None:
        self._filter.choose()

    def action_save(self) -> None:
        self._filter.save()

    async def action_leave(self) -> None:
        """Clear the filter first, then the marks."""
        if self.maximized:
            self.minimize()
        elif self._filter.is_open:
            self._filter.clear()
            self._table.focus()
        else:
            self._marked = []
        self._paint()

    def on_input_changed(self) -> None:
        self._paint()

    def on_input_submitted(self) -> None:
        self._filter.close_if_empty()
        self._table.focus()
        self.call_after_refresh(self._paint)

    def on_key(self, event: Any) -> None:
        if event.key in ("down", "up") and isinstance(self.focused, FilterInput):
            self._table.focus()
            self.call_after_refresh(self._paint)

    # --- the runs -------------------------------------------------------------------------------

    def action_mark(self) -> None:
        """Mark the run under the cursor, or all runs of the group, or unmark them."""
        line = self._table.line
        if line is None:
            return
        ids = [row.id for row in line.rows] if isinstance(line, GroupRow) else [line.id]
        if all(id in self._marked for id in ids):
            self._marked = [id for id in self._marked if id not in ids]
        else:
            self._marked += [id for id in ids if id not in self._marked]
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
        """Return the marked runs that the filter shows, else those of the group or the one under
        the cursor.
        """
        marked = [row for row in self.listing.shown if row.id in self._marked]
        if not marked and self._table.group:
            return self._sessions(self._table.group.rows)
        if not marked:
            current = self._current()
            return [current] if current else []
        return self._sessions(marked)

    def _sessions(self, rows: Iterable[RunRow]) -> list[Session]:
        return [session for row in rows if (session := self._session(row))]

    def obstacle(self, id: str) -> str:
        row = self._table.row
        if id == "runs.stop" and row and not row.live:
            return "The run has ended."
        must_end = ("runs.resume",) if self._marked else ("runs.resume", "runs.delete")
        if id in must_end and row and row.live:
            return "The run has not ended."
        if id in {f"{RUNS}.{name}" for name in OF_A_RUN} and self._table.line is None:
            return "There is no run under the cursor."
        return super().obstacle(id)

    def action_open(self) -> None:
        """Open the run under the cursor, or fold the group."""
        if self._table.group:
            self._fold(self._table.group)
        elif session := self._current():
            self.distrain.sessions.open(session)

    def on_run_table_opened(self, event: RunTable.Opened) -> None:
        if isinstance(event.row, GroupRow):
            self._fold(event.row)
        elif session := self._session(event.row):
            self.distrain.sessions.open(session)

    def _fold(self, group: GroupRow) -> None:
        self.listing.folded ^= {group.id}
        self._paint()

    def action_compare(self) -> None:
        from distrain.runners.runs import Run
        from distrain.tui.screens.compare_screen import CompareScreen

        if sweep := self._sweep_at_cursor():
            self._open_group(sweep)
            return
        rows = self._compared()
        sessions = self._sessions(rows[:MOST_COMPARED])
        runs = [session for session in sessions if isinstance(session, Run)]
        if len(runs) < len(sessions):
            self.distrain.refuse("a bench already compares its candidates: open it")
        elif len(rows) > MOST_COMPARED:
            self.distrain.refuse(
                f"{len(rows):,} runs are too many for one comparison; at most {MOST_COMPARED}"
            )
        elif len(runs) > 1:
            self.app.push_screen(CompareScreen(runs))
        else:
            hint = "mark two or more runs with {runs.mark}; then {runs.compare} compares them"
            self.distrain.refuse(keymap.insert_keys(hint, self.app))

    def _compared(self) -> list[RunRow]:
        """Return the runs to compare: see HELP."""
        if self._marked:
            return [self.rows[id] for id in self._marked]
        if self._table.group:
            return list(self._table.group.rows)
        if self._filter.text.strip():
            return [row for row in self.listing.shown if row.kind != BENCH]
        pinned, row = self._pinned, self._table.row
        return [each for each in (pinned, row if row != pinned else None) if each is not None]

    def _sweep_at_cursor(self) -> str:
        """Return the id of the sweep under the cursor, unless other runs are to be compared."""
        group, row = self._table.group, self._table.row
        if self._marked or self._pinned or (self._filter.text.strip() and not group):
            return ""
        ids = {each.group for each in group.rows} if group else {row.group if row else ""}
        return ids.pop() if len(ids) == 1 else ""

    def _open_group(self, id: str) -> None:
        """Open the table and the curves of the runs of a sweep."""
        from distrain.runners.groups import Group
        from distrain.runners.runs import Run

        rows = [row for row in self.rows.values() if row.group == id]
        sessions = self._sessions(sorted(rows, key=lambda row: (row.created, row.id)))
        runs = [session for session in sessions if isinstance(session, Run)]
        if runs:
            self.distrain.sessions.open(Group(id, runs))

    def action_queue(self) -> None:
        from distrain.tui.screens.queue_screen import QueueScreen

        self.app.push_screen(QueueScreen())

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


def _is_greatest_first(column: str) -> bool:
    """Return whether a column is first sorted from its greatest value down."""
    return column in NUMBERS or column.startswith(METRIC)
