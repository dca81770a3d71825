"""One bench, live or ended: its results, its rounds, and notes on them."""

from __future__ import annotations

import threading
import time

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Unit
from distrain.runners.bench import Bench
from distrain.runners.errors import DistrainError
from distrain.runners.records.reader import Record
from distrain.runners.runs import Run
from distrain.tui import keymap
from distrain.tui.data.bench_feed import BenchFeed, BenchFrame, BenchRun, runs_of
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.keymap import BENCH
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.bench_header import BenchHeader
from distrain.tui.widgets.bench_notes import BenchNotes
from distrain.tui.widgets.bench_results import BenchResults
from distrain.tui.widgets.bench_rounds import BenchRounds
from distrain.tui.widgets.key_bar import KeyBar

POLL_S = 1.0  # between two reads
CPU_SHARE = 0.05  # of one core: what reading may use
# Lines:
HEADER = 3
BORDER = 2
LEAST_NOTES = 6


class BenchScreen(AppScreen):
    """Show the frames that a thread reads of the bench."""

    HELP = (
        "A bench, live or ended: rounds of real runs, with each candidate once per round. Tab goes "
        "to the next pane, {app.full} shows one pane only, Esc goes back; the bench continues "
        "without the app."
    )
    KEYS = (BENCH,)
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(BENCH),
        keymap.make_hidden_binding("tab", "pane(1)"),
        keymap.make_hidden_binding("shift+tab", "pane(-1)"),
    ]

    class FrameRead(Message):
        """A new frame of the bench, or why there is none."""

        def __init__(self, frame: BenchFrame | None, problem: str = "") -> None:
            super().__init__()
            self.frame = frame
            self.problem = problem

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.shown_id = bench.id
        self.frame: BenchFrame | None = None
        self._problem = ""  # why the record cannot be read, from then on
        self._wake = threading.Event()
        self._has_left = threading.Event()

    def compose(self) -> ComposeResult:
        yield BenchHeader()
        yield BenchResults("Results", id="results")
        yield BenchRounds("Rounds", id="rounds")
        yield BenchNotes("Notes", id="notes")
        yield KeyBar()

    def on_mount(self) -> None:
        self.panes: list[Widget] = [
            self.query_one(BenchResults),
            self.query_one(BenchRounds),
            self.query_one(BenchNotes),
        ]
        self.app.theme_changed_signal.subscribe(self, lambda _: self._paint_soon())
        self.watch(self, "maximized", self._paint_soon, init=False)
        self._make_current(self.panes[-1])
        self.panes[0].focus()
        self._follow()

    def on_unmount(self) -> None:
        self._has_left.set()
        self._wake.set()

    def on_screen_resume(self) -> None:
        self._wake.set()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker = get_current_worker()
        feed = BenchFeed(self.bench)
        last_problem = ""
        while not (worker.is_cancelled or self._has_left.is_set()):
            cpu_before = time.process_time()
            try:
                if self.is_watched and (feed.has_changed() or last_problem):
                    self.post_message(self.FrameRead(feed.read()))
                    last_problem = ""
            except (DistrainError, OSError) as error:
                if str(error) != last_problem:
                    last_problem = str(error)
                    self.post_message(self.FrameRead(None, last_problem))
            used = time.process_time() - cpu_before
            self._wake.wait(max(POLL_S, used / CPU_SHARE))
            self._wake.clear()

    def on_bench_screen_frame_read(self, event: FrameRead) -> None:
        if event.frame is None:
            self._problem = event.problem
            self.distrain.refuse(event.problem)
            self.query_one(BenchHeader).show_problem(self.bench.id, event.problem)
            return
        self._problem = ""
        before = self.frame
        self.frame = event.frame
        self._paint()
        if before is None or before.state.status != event.frame.state.status:
            self.refresh_bindings()
        if before and before.state.live and not event.frame.state.live:
            self.distrain.sessions.report_end(self.bench, event.frame.state.ended)

    # --- panes ----------------------------------------------------------------------------------

    def _paint(self) -> None:
        frame = self.frame
        if frame is None:
            return
        self._fit(len(frame.comparison.candidates))
        now = frame.state.current.candidate if frame.state.current else ""
        hidden = sum(not pane.region for pane in self.panes)
        hint = f"tab: {hidden} more" if hidden else ""
        if not self._problem:
            self.query_one(BenchHeader).show(frame, self.bench.definition, hint)
        self.query_one(BenchResults).show(frame.comparison, now)
        self.query_one(BenchRounds).show(frame.comparison)
        self.query_one(BenchNotes).show(frame.comparison)

    def _fit(self, candidates: int) -> None:
        """Set the heights of the panes. Tables are as high as they need to be. Where too few lines
        are left for notes, rounds and notes share one place.
        """
        room = self.size.height - HEADER - 1
        needed = candidates + 1 + BORDER
        results = max(min(needed, room // 2), 4)
        self.query_one(BenchResults).styles.height = results
        self.set_class(room - results - needed < LEAST_NOTES, "-one")
        self.query_one(BenchRounds).styles.height = needed

    def _paint_soon(self) -> None:
        self.call_after_refresh(self._paint)

    def on_resize(self) -> None:
        self._paint_soon()

    def action_pane(self, direction: int) -> None:
        current = self.panes.index(self.focused) if self.focused in self.panes else -1
        pane = self.panes[(current + direction) % len(self.panes)]
        self._make_current(pane)
        self.set_focus(pane)
        if self.maximized:
            self.maximize(pane, container=False)
        self._paint_soon()

    def _make_current(self, pane: Widget) -> None:
        """Show either rounds or notes on a small screen, whichever was current last."""
        if not isinstance(pane, BenchResults):
            self.set_class(isinstance(pane, BenchRounds), "-rounds")

    # --- actions --------------------------------------------------------------------------------

    def offers(self, binding: Binding) -> bool:
        """Show the keys that fit the state of the bench."""
        state = self.frame.state if self.frame else None
        if state is None:
            return super().offers(binding)
        is_unfinished = not state.live and state.rounds < self.bench.definition.rules.repeats
        fits = {
            "bench.stop": state.live,
            "bench.now": state.live,
            "bench.resume": is_unfinished,
            "bench.rerun": not state.live,
        }
        return fits.get(binding.id or "", True) and super().offers(binding)

    def action_stop(self) -> None:
        self.distrain.sessions.stop(self.bench)

    def action_resume(self) -> None:
        self.distrain.sessions.resume(self.bench)

    def action_rerun(self) -> None:
        self.distrain.sessions.rerun(self.bench)

    def action_edit(self) -> None:
        self.distrain.sessions.edit(self.bench)

    def action_now(self) -> None:
        run = self.bench.current_run
        if run is None:
            self.distrain.refuse("no run of this bench is in progress")
        else:
            self.distrain.sessions.open(run)

    def action_open(self) -> None:
        """Open the run of the candidate under the cursor; ask which where there are several."""
        candidate = self.query_one(BenchResults).candidate
        if self.frame is None or candidate is None:
            return
        found = runs_of(self.frame, candidate.name)
        if not found:
            self.distrain.refuse(f"{candidate.name} has no run yet")
        elif len(found) == 1:
            self._open(found[0].folder)
        else:
            unit = self.frame.state.unit
            options = [(run.folder, _describe(run, unit)) for run in found]
            self.app.push_screen(PickOneDialog(f"Runs of {candidate.name}", options), self._open)

    def _open(self, folder: str | None) -> None:
        if folder:
            self.distrain.sessions.open(Run(Record(self.bench.dir / folder)))

    def action_copy(self) -> None:
        self.distrain.copy(self.bench.definition.to_toml(), "bench definition")


def _describe(run: BenchRun, unit: Unit) -> str:
    rate = "in progress" if run.rate is None else formatting.rate(run.rate, unit)
    return f"round {run.round}  {rate}"
