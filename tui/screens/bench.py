"""One bench, live or ended: its standing, its rounds, and what follows from them."""

from __future__ import annotations

import threading
import time

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from runners import words
from runners.bench import Bench
from runners.errors import DistrainError
from runners.record import Record
from runners.runs import Run
from tui import keymap
from tui.data.benches import Look, Looker, OneRun, runs_of
from tui.keymap import BENCH
from tui.screens.base import AppScreen
from tui.screens.dialogs import PickOne
from tui.widgets.bench_header import BenchHeader
from tui.widgets.bench_notes import BenchNotes
from tui.widgets.bench_rounds import BenchRounds
from tui.widgets.bench_standing import BenchStanding
from tui.widgets.key_bar import KeyBar

LOOK_S, SHARE = 1.0, 0.05  # between two looks, and the part of a core that they may take
HEAD, BORDER, LEAST_NOTES = 3, 2, 6  # lines


class BenchScreen(AppScreen):
    """Shows looks that a thread takes of the bench; its panes hold nothing else."""

    HELP = (
        "A bench, live or ended: rounds of real runs, each contestant once in a round. Tab goes "
        "from pane to pane, {app.full} shows one alone, Esc goes back; the bench goes on without "
        "you."
    )
    KEYS = (BENCH,)
    BINDINGS = [  # noqa: RUF012
        *keymap.bindings(BENCH),
        keymap.hidden("tab", "pane(1)"),
        keymap.hidden("shift+tab", "pane(-1)"),
    ]

    class Looked(Message):
        """The bench at a moment, or why that cannot be told."""

        def __init__(self, look: Look | None, problem: str = "") -> None:
            super().__init__()
            self.look, self.problem = look, problem

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self._look: Look | None = None
        self._wake, self._left = threading.Event(), threading.Event()

    def compose(self) -> ComposeResult:
        yield BenchHeader()
        yield BenchStanding("standing", id="standing")
        yield BenchRounds("samples/s of each round", id="rounds")
        yield BenchNotes("what follows", id="notes")
        yield KeyBar()

    def on_mount(self) -> None:
        self._panes: list[Widget] = [
            self.query_one(BenchStanding),
            self.query_one(BenchRounds),
            self.query_one(BenchNotes),
        ]
        self.app.theme_changed_signal.subscribe(self, lambda _: self._paint_soon())
        self.watch(self, "maximized", self._paint_soon, init=False)
        self._make_current(self._panes[-1])
        self._panes[0].focus()
        self._follow()

    def on_unmount(self) -> None:
        self._left.set()
        self._wake.set()

    def on_screen_resume(self) -> None:
        self._wake.set()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker, looker, told = get_current_worker(), Looker(self.bench), ""
        while not (worker.is_cancelled or self._left.is_set()):
            began = time.process_time()
            try:
                if self.is_current and looker.changed():
                    self.post_message(self.Looked(looker.look()))
                    told = ""
            except (DistrainError, OSError) as error:
                if str(error) != told:
                    told = str(error)
                    self.post_message(self.Looked(None, told))
            self._wake.wait(max(LOOK_S, (time.process_time() - began) / SHARE))
            self._wake.clear()

    def on_bench_screen_looked(self, event: Looked) -> None:
        if event.look is None:
            self.distrain.refuse(event.problem)
            return
        before, self._look = self._look, event.look
        self._paint()
        if before is None or before.state.status != event.look.state.status:
            self.refresh_bindings()
        if before and before.state.live and not event.look.state.live:
            self.distrain.tell_end(self.bench)

    # --- panes ----------------------------------------------------------------------------------

    def _paint(self) -> None:
        look = self._look
        if look is None:
            return
        self._fit(len(look.comparison.contestants))
        now = look.state.now.contestant if look.state.now else ""
        hidden = sum(not pane.region for pane in self._panes)
        hint = f"tab: {hidden} more" if hidden else ""
        self.query_one(BenchHeader).show(look, self.bench.definition, hint)
        self.query_one(BenchStanding).show(look.comparison, now)
        self.query_one(BenchRounds).show(look.comparison)
        self.query_one(BenchNotes).show(look.comparison)

    def _fit(self, contestants: int) -> None:
        """Tables take the lines that they need; where notes would have too few, the rounds share
        their place with them.
        """
        room = self.size.height - HEAD - 1
        needed = contestants + 1 + BORDER
        standing = max(min(needed, room // 2), 4)
        self.query_one(BenchStanding).styles.height = standing
        self.set_class(room - standing - needed < LEAST_NOTES, "-one")
        self.query_one(BenchRounds).styles.height = needed

    def _paint_soon(self) -> None:
        self.call_after_refresh(self._paint)

    def on_resize(self) -> None:
        self._paint_soon()

    def action_pane(self, direction: int) -> None:
        now = self._panes.index(self.focused) if self.focused in self._panes else -1
        pane = self._panes[(now + direction) % len(self._panes)]
        self._make_current(pane)
        pane.focus()
        if self.maximized:
            self.maximize(pane, container=False)
        self._paint_soon()

    def _make_current(self, pane: Widget) -> None:
        """On a small screen rounds and notes take turns."""
        if not isinstance(pane, BenchStanding):
            self.set_class(isinstance(pane, BenchRounds), "-rounds")

    # --- actions --------------------------------------------------------------------------------

    def offers(self, binding: Binding) -> bool:
        """What has ended is not to be stopped, but may be had again."""
        state = self._look.state if self._look else None
        if state is None:
            return super().offers(binding)
        unfinished = not state.live and state.rounds < self.bench.definition.rules.repeats
        there = {
            "bench.stop": state.live,
            "bench.now": state.live,
            "bench.resume": unfinished,
            "bench.rerun": not state.live,
        }
        return there.get(binding.id or "", True) and super().offers(binding)

    def action_stop(self) -> None:
        self.distrain.stop_bench(self.bench)

    def action_resume(self) -> None:
        self.distrain.resume_bench(self.bench)

    def action_rerun(self) -> None:
        self.distrain.rerun_bench(self.bench)

    def action_edit(self) -> None:
        self.distrain.edit(self.bench)

    def action_now(self) -> None:
        run = self.bench.current
        if run is None:
            self.distrain.refuse("no run is under way")
        else:
            self.distrain.watch_run(run)

    def action_open(self) -> None:
        """The runs of the contestant under the cursor; the only one at once."""
        contestant = self.query_one(BenchStanding).contestant
        if self._look is None or contestant is None:
            return
        found = runs_of(self._look, contestant.name)
        if not found:
            self.distrain.refuse(f"{contestant.name} has no run yet")
        elif len(found) == 1:
            self._open(found[0].folder)
        else:
            options = [(run.folder, _told(run)) for run in found]
            self.app.push_screen(PickOne(f"Runs of {contestant.name}", options), self._open)

    def _open(self, folder: str | None) -> None:
        if folder:
            self.distrain.watch_run(Run(Record(self.bench.dir / folder)))

    def action_copy(self) -> None:
        self.distrain.copy(self.bench.definition.to_toml(), "the definition")


def _told(run: OneRun) -> str:
    how = "under way" if run.rate is None else words.rate(run.rate)
    return f"round {run.round}  {how}"
