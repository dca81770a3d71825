"""All runs in a table."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from runners import words
from runners.errors import DistrainError
from runners.record import TRASH, Record, restore
from runners.runs import Run
from tui import keymap
from tui.data.listing import Lister, News
from tui.data.rows import BENCH, NUMBERS, SORTS, Row, matching, ordered
from tui.keymap import RUNS
from tui.screens.base import AppScreen
from tui.widgets.key_bar import KeyBar
from tui.widgets.run_lines import about
from tui.widgets.run_table import RunTable

if TYPE_CHECKING:
    from runners.bench import Bench

LOOK_S = 1.0
PAUSE_S = 0.02  # between batches, for the table to be painted
NONE_YET = "No runs yet. {app.new} launches one."


class RunsScreen(AppScreen):
    """Shows rows that a thread reads of the runs folder."""

    HELP = (
        "Delete and compare act on the marked runs, every other key on the one under the cursor; "
        "so does delete where none is marked."
    )
    KEYS = (RUNS,)
    BINDINGS = [  # noqa: RUF012
        *keymap.bindings(RUNS),
        keymap.hidden("escape", "leave"),
    ]

    class Listed(Message):
        """What the thread has found; `complete` once it has seen every run."""

        def __init__(self, news: News, complete: bool) -> None:
            super().__init__()
            self.news, self.complete = news, complete

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Row] = {}
        self._marked: list[str] = []
        self._problems: dict[str, str] = {}
        self._complete = False
        self._shown: list[Row] = []
        self._wake, self._stale = threading.Event(), threading.Event()
        self._left = threading.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="runs-head")
        yield RunTable()
        yield Static(id="runs-problem")
        yield Static(id="runs-about")
        yield Input(placeholder="words to find · esc shows all", id="runs-filter", compact=True)
        yield KeyBar()

    def on_mount(self) -> None:
        self._table = self.query_one(RunTable)
        self._filter = self.query_one("#runs-filter", Input)
        self._filter.display = False
        self._table.focus()
        self._watch()

    def on_unmount(self) -> None:
        self._left.set()
        self._wake.set()

    def on_screen_resume(self) -> None:
        self._again()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _watch(self) -> None:
        worker, lister = get_current_worker(), Lister(self.distrain.runs_dir)
        complete = False
        while not (worker.is_cancelled or self._left.is_set()):
            if self.is_current or not complete:
                if self._stale.is_set():
                    self._stale.clear()
                    lister.again()
                for news in lister.look(oldest_first=self._oldest_first):
                    self.post_message(self.Listed(news, complete))
                    self._left.wait(PAUSE_S)
                if not complete:
                    complete = True
                    self.post_message(self.Listed(News(), complete))
                    import_module("tui.screens.run")  # now, as nobody waits: it is opened next
            self._wake.wait(PAUSE_S if lister.behind else LOOK_S)
            self._wake.clear()
        lister.close()

    def _again(self) -> None:
        """Look at every run anew, for something was done to them."""
        self._stale.set()
        self._wake.set()

    @property
    def _oldest_first(self) -> bool:
        return self._sorting == ("age", False)

    def on_runs_screen_listed(self, event: Listed) -> None:
        news = event.news
        self._tell_ends(news)
        self._rows.update((row.id, row) for row in news.rows)
        for gone in news.gone:
            self._rows.pop(gone, None)
        self._marked = [id for id in self._marked if id in self._rows]
        self._problems = self._problems if news.problems is None else news.problems
        if event.complete and not self._complete:
            self._complete = True
            self.distrain.settle()
        self._paint()

    def _tell_ends(self, news: News) -> None:
        for row in news.rows:
            before = self._rows.get(row.id)
            if before and before.live and not row.live and (what := self._what(row)):
                self.distrain.tell_end(what)

    # --- what is shown --------------------------------------------------------------------------

    @property
    def _sorting(self) -> tuple[str, bool]:
        settings = self.distrain.settings
        return (settings.sort if settings.sort in SORTS else "age"), settings.descending

    def _paint(self) -> None:
        by, descending = self._sorting
        rows = ordered(matching(self._rows.values(), self._filter.value), by, descending)
        self._shown = rows
        empty = ""
        if self._rows:
            empty = "No run has all of these words. esc shows all."
        elif self._complete:
            empty = keymap.keyed(NONE_YET, self.app)
        self._table.show(rows, self._marked, by, descending, empty, hold=self._complete)
        self._paint_about(self._table.row)
        self._paint_head()

    def _paint_head(self) -> None:
        shown, all_of_them = len(self._shown), len(self._rows)
        live = sum(row.live for row in self._rows.values())
        benches = any(row.kind == BENCH for row in self._rows.values())
        parts = [words.things(all_of_them, "run") + " and benches" * benches]
        if shown < all_of_them:
            parts[0] = f"{shown:,} of {parts[0]}"
        parts += [f"{live} live"] if live else []
        parts += [f"{len(self._marked)} marked"] if self._marked else []
        line = Text.assemble((" distrain", "bold"), f"  {' · '.join(parts)}")
        where = str(self.distrain.runs_dir)
        line.append(f"  {where}".rjust(max(self.size.width - line.cell_len - 1, 0)), "dim")
        line.truncate(self.size.width, overflow="ellipsis")
        self.query_one("#runs-head", Static).update(line)
        self._paint_problems()

    def _paint_problems(self) -> None:
        pane, found = self.query_one("#runs-problem", Static), list(self._problems.values())
        pane.display = bool(found)
        if found:
            more = f"(and {len(found) - 1} more) " if len(found) > 1 else ""
            first = found[0].replace(f"{self.distrain.runs_dir}/", "")
            pane.update(Text(f" {more}{first}", no_wrap=True, overflow="ellipsis"))

    def on_run_table_pointed(self, event: RunTable.Pointed) -> None:
        self._paint_about(event.row)

    def _paint_about(self, row: Row | None) -> None:
        self.query_one("#runs-about", Static).update(about(row, self.has_class("-short")))

    def on_resize(self) -> None:
        if self.is_mounted:
            self._paint()

    # --- the table ------------------------------------------------------------------------------

    def action_order(self) -> None:
        names, now = self._table.sortable, self._sorting[0]
        by = names[(names.index(now) + 1) % len(names)] if now in names else names[0]
        self._sort(by, by in NUMBERS)

    def action_reverse(self) -> None:
        self._sort(self._sorting[0], not self._sorting[1])

    def on_run_table_sorted(self, event: RunTable.Sorted) -> None:
        by, descending = self._sorting
        self._sort(event.by, not descending if event.by == by else event.by in NUMBERS)

    def _sort(self, by: str, descending: bool) -> None:
        self.distrain.remember(sort=by, descending=descending)
        self._paint()

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    async def action_leave(self) -> None:
        """Escape undoes the last narrowing first: the filter, then the marks."""
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

    def _here(self) -> Run | Bench | None:
        """The run or bench under the cursor; says so where there is none."""
        row = self._table.row
        if row is None:
            self.distrain.refuse("there is no run here")
            return None
        return self._what(row)

    def _what(self, row: Row) -> Run | Bench | None:
        folder = self.distrain.runs_dir / row.id
        try:
            if row.kind == BENCH:
                from runners.bench import Bench

                return Bench(folder)
            return Run(Record(folder))
        except DistrainError as error:
            self.distrain.refuse(str(error))
            return None

    def _chosen(self) -> list[Run | Bench]:
        """The marked rows that are in sight, else the one under the cursor."""
        marked = [row for row in self._shown if row.id in self._marked]
        found = [self._what(row) for row in marked] if marked else [self._here()]
        return [each for each in found if each is not None]

    def action_open(self) -> None:
        if what := self._here():
            self.distrain.look_at(what)

    def on_run_table_opened(self, event: RunTable.Opened) -> None:
        if what := self._what(event.row):
            self.distrain.look_at(what)

    def action_compare(self) -> None:
        from tui.screens.compare import CompareScreen

        here = self._table.row
        rows = [self._rows[id] for id in self._marked] or ([here] if here else [])
        found = [what for row in rows if (what := self._what(row))]
        runs = [what for what in found if isinstance(what, Run)]
        if len(runs) < len(found):
            self.distrain.refuse("a bench is a comparison already: open it")
        elif len(runs) > 1:
            self.app.push_screen(CompareScreen(runs))
        else:
            hint = "mark two runs or more with {runs.mark}, then {runs.compare} compares them"
            self.distrain.refuse(keymap.keyed(hint, self.app))

    def action_stop(self) -> None:
        if what := self._here():
            self.distrain.stop_it(what)

    def action_rerun(self) -> None:
        if what := self._here():
            self.distrain.rerun_it(what)

    def action_resume(self) -> None:
        if what := self._here():
            self.distrain.resume_it(what)

    def action_edit(self) -> None:
        if run := self._here():
            self.distrain.edit(run, self._again)

    def action_pin(self) -> None:
        if not self.distrain.may_change() or not (what := self._here()):
            return
        noted = what.record if isinstance(what, Run) else what
        try:
            noted.set_meta(pinned=not noted.meta.pinned)
        except DistrainError as error:
            self.distrain.refuse(str(error))
        self._again()

    def action_delete(self) -> None:
        if runs := self._chosen():
            self.distrain.delete(runs, self._again)

    def action_undo(self) -> None:
        if not self.distrain.may_change():
            return
        if not self.distrain.deleted:
            self.distrain.refuse("nothing was deleted since the app was opened")
            return
        back = []
        for wanted in self.distrain.deleted:
            try:
                restore(self.distrain.runs_dir / TRASH / wanted)
                back.append(wanted)
            except DistrainError as error:
                self.distrain.refuse(str(error))
        self.distrain.deleted = [id for id in self.distrain.deleted if id not in back]
        if back:
            self.notify(f"taken back out of the trash: {words.things(len(back), 'run')}")
        self._again()

    def action_copy(self) -> None:
        if run := self._here():
            self.distrain.copy(run.id, "the run's id")
