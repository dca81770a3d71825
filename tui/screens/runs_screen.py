"""The table of all runs and benches of a runs folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static

from distrain.tui import keymap
from distrain.tui.data.copying import CopyValue, flat_values
from distrain.tui.data.history import describe_unseen
from distrain.tui.data.run_groups import GroupRow, TableRow
from distrain.tui.data.run_listing import RunListing
from distrain.tui.data.run_rows import RunRow
from distrain.tui.data.run_scanner import FolderChanges
from distrain.tui.keymap import RUNS
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.screens.folder_reader import FolderReader
from distrain.tui.screens.run_reports import RunReports
from distrain.tui.screens.run_selection import RunSelection, open_session
from distrain.tui.screens.runs_arrangement import RunsArrangement
from distrain.tui.screens.runs_comparison import RunsComparison
from distrain.tui.screens.runs_filter import RunsFilter
from distrain.tui.widgets.filter_input import FilterInput
from distrain.tui.widgets.group_line import group_line
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.run_columns import column_title
from distrain.tui.widgets.run_details import details
from distrain.tui.widgets.run_table import RunTable
from distrain.tui.widgets.runs_header import RunsHeader

if TYPE_CHECKING:
    from distrain.tui.screens.selected_run import GlanceRead, SelectedRun

NO_RUNS = "No runs yet. {app.new} launches one."
NO_MATCH = "No run matches the filter. esc clears it."
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
        self._problems: dict[str, str] = {}
        self._selected_run: SelectedRun | None = None
        self._reports = RunReports(self)
        self._table = RunTable(self.distrain.run_marks)
        self._selection = RunSelection(self.distrain, self.listing, self._table)
        self._arrangement = RunsArrangement(self.distrain, self.listing, self._table, self._paint)
        self._comparison = RunsComparison(self.distrain, self.listing, self._table, self._selection)
        # It reads while the widgets are made, so that the first paint has rows.
        self._reader = FolderReader(
            self,
            oldest_first=lambda: self._arrangement.order[:2] == ("age", False),
            on_read=lambda: self.post_message(self.FolderRead()),
        )

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
            yield self._table
        yield Static(id="runs-about")
        yield Static(id="runs-note")
        yield KeyBar()

    def on_mount(self) -> None:
        self._filter = RunsFilter(self.distrain, self.query_one("#runs-note", Static), self._paint)
        self._table.focus()
        # Nothing is painted yet. An empty table first and the rows then would take longer.
        for reading in self._reader.take_first():
            self._accept(*reading)

    def on_unmount(self) -> None:
        self._reader.stop()

    def on_screen_resume(self) -> None:
        self._reader.reread()
        if self.is_complete:
            self._paint()

    # --- what was read ---------------------------------------------------------------------------

    def on_runs_screen_folder_read(self) -> None:
        for reading in self._reader.take():
            self._accept(*reading)

    def _accept(self, changes: FolderChanges, is_complete: bool) -> None:
        self._reports.report(self.rows, changes)
        self.rows.update((row.id, row) for row in changes.rows)
        for id in changes.gone:
            self.rows.pop(id, None)
        self._selection.forget_missing()
        if changes.problems is not None:
            self._problems = changes.problems
        if is_complete and not self.is_complete:
            self.listing.is_complete = True
            self.distrain.start_garbage_collection()
            self.distrain.read_screens_css()
            self._add_preview()
            self.distrain.see_history(self.distrain.history.seen_until)  # known from now on
        if self.is_current or not self._reader.is_painted:
            self._paint()
        if not self._reader.is_painted:
            self.call_after_refresh(self._reader.note_paint)

    def _add_preview(self) -> None:
        from distrain.tui.screens.selected_run import SelectedRun  # once the table is painted

        body = self.query_one("#runs-body", Horizontal)
        self._selected_run = SelectedRun(self, body, self.distrain)
        self._selected_run.resize(self.distrain.settings.preview)

    # --- what is shown --------------------------------------------------------------------------

    def _paint(self) -> None:
        order = self._arrangement.order
        lines = self.listing.arrange(self._filter.text, order)
        empty = ""
        if self.rows:
            empty = NO_MATCH
        elif self.is_complete:
            empty = keymap.insert_keys(NO_RUNS, self.app)
        look = self._arrangement.look()
        self._table.show(lines, self._selection.marked, look, empty, hold=self.is_complete)
        self._paint_selected(self._table.line)
        self._filter.explain(self.listing.problem, self.rows.values(), self._problem)
        self._paint_header()

    def _paint_header(self) -> None:
        order = self._arrangement.order
        self.query_one(RunsHeader).show(
            list(self.rows.values()),
            len(self.listing.shown),
            len(self._selection.marked),
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
            about.update(group_line(line, self._arrangement.order.group_by))
        else:
            about.update(details(line, self.has_class("-short")))
        if self._selected_run is not None:
            self._selected_run.show(line, self._selection.pinned)

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
        self._arrangement.sort_by_next()

    def action_reverse(self) -> None:
        self._arrangement.reverse()

    def on_run_table_sorted(self, event: RunTable.Sorted) -> None:
        self._arrangement.sort_by(event.by)

    def action_columns(self) -> None:
        self._arrangement.choose_columns()

    def action_group(self) -> None:
        self._arrangement.choose_groups()

    def action_folds(self) -> None:
        self._arrangement.toggle_folds()

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
            self.set_focus(self._table)
        else:
            self._selection.marked = []
        self._paint()

    def on_input_changed(self) -> None:
        self._paint()

    def on_input_submitted(self) -> None:
        self._filter.close_if_empty()
        self.set_focus(self._table)
        self.call_after_refresh(self._paint)

    def on_key(self, event: Any) -> None:
        if event.key in ("down", "up") and isinstance(self.focused, FilterInput):
            self.set_focus(self._table)
            self.call_after_refresh(self._paint)

    # --- the runs -------------------------------------------------------------------------------

    def action_mark(self) -> None:
        self._selection.toggle_mark()
        self._table.mark(self._selection.marked)
        self._paint_header()

    def obstacle(self, id: str) -> str:
        row = self._table.row
        if id == "runs.stop" and row and not row.live:
            return "The run has ended."
        must_end = ("runs.resume",) if self._selection.marked else ("runs.resume", "runs.delete")
        if id in must_end and row and row.live:
            return "The run has not ended."
        if id in {f"{RUNS}.{name}" for name in OF_A_RUN} and self._table.line is None:
            return "There is no run under the cursor."
        return super().obstacle(id)

    def action_open(self) -> None:
        """Open the run under the cursor, or fold the group."""
        if self._table.group:
            self._arrangement.toggle_fold(self._table.group)
        elif session := self._selection.current():
            self.distrain.sessions.open(session)

    def on_run_table_opened(self, event: RunTable.Opened) -> None:
        if isinstance(event.row, GroupRow):
            self._arrangement.toggle_fold(event.row)
        elif session := open_session(self.distrain, event.row):
            self.distrain.sessions.open(session)

    def action_compare(self) -> None:
        self._comparison.open(is_filtered=bool(self._filter.text.strip()))

    def action_queue(self) -> None:
        from distrain.tui.screens.queue_screen import QueueScreen

        self.app.push_screen(QueueScreen())

    def action_stop(self) -> None:
        if session := self._selection.current():
            self.distrain.sessions.stop(session)

    def action_rerun(self) -> None:
        if session := self._selection.current():
            self.distrain.sessions.rerun(session)

    def action_resume(self) -> None:
        if session := self._selection.current():
            self.distrain.sessions.resume(session)

    def action_edit(self) -> None:
        if session := self._selection.current():
            self.distrain.sessions.edit(session, self._reader.reread)

    def action_pin(self) -> None:
        if session := self._selection.current():
            self.distrain.sessions.toggle_pin(session)
            self._reader.reread()

    def action_delete(self) -> None:
        if sessions := self._selection.sessions():
            self.distrain.sessions.delete(sessions, self._reader.reread)

    def action_undo(self) -> None:
        self.distrain.sessions.restore(self._reader.reread)

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
