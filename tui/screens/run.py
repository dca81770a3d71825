"""One run, live or long ended: its plots, ranks, machine and logs."""

from __future__ import annotations

import time

import msgspec
from textual import work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from runners.errors import DistrainError
from runners.runs import Run
from tui import keymap
from tui.data.feed import Feed, Frame
from tui.data.plots import PLOTS, USUAL
from tui.keymap import LOG, PLOT, RUN
from tui.screens.plotting import PlottingScreen
from tui.settings import Settings
from tui.widgets.failure_card import FailureCard
from tui.widgets.hardware import Hardware
from tui.widgets.key_bar import KeyBar
from tui.widgets.log_pane import LogPane
from tui.widgets.node_pane import NodePane
from tui.widgets.plot import PlotPane
from tui.widgets.rank_table import RankTable
from tui.widgets.run_header import RunHeader

# Tables take the lines that they need, up to this part of the screen.
TABLES_PART, LEAST_TABLE, BORDER = 3, 5, 2


class RunScreen(PlottingScreen):
    """Shows frames that a thread reads of the record; its panes hold nothing else."""

    HELP = (
        "A run, live or ended. Tab goes from pane to pane, {app.full} shows one alone, Esc goes "
        "back; the run goes on without you. Plots share their x axis, zoom and cursor."
    )
    KEYS = (RUN, PLOT, LOG)
    BINDINGS = [*keymap.bindings(RUN, PLOT), *PlottingScreen.PANE_BINDINGS]  # noqa: RUF012

    class Looked(Message):
        """A frame of the run, or why there is none."""

        def __init__(self, frame: Frame | None, problem: str = "") -> None:
            super().__init__()
            self.frame, self.problem = frame, problem

    def __init__(self, run: Run) -> None:
        super().__init__(_chosen(self.app.settings))  # type: ignore[attr-defined]
        self.run = run
        self._frame: Frame | None = None
        self._was_live = run.is_live
        self._again = ""  # the key of what can be done once it has ended
        self._tables_height = 0

    def compose(self) -> ComposeResult:
        yield RunHeader()
        yield FailureCard()
        with Container(id="plots"):
            for index in range(len(self._view.plots)):
                yield PlotPane(id=f"plot-{index}")
        yield LogPane(id="logs")
        with Container(id="tables"):
            yield RankTable("ranks", id="ranks")
            yield Hardware("machine", id="hardware")
        yield KeyBar()

    def on_mount(self) -> None:
        self._tables = [self.query_one(RankTable), self.query_one(Hardware)]
        self._logs = self.query_one(LogPane)
        if (error := self.run.record.state.error) and error.rank is not None:
            self._logs.choose(f"rank-{error.rank}")
        self._begin(*self.query(PlotPane), *self._tables)
        self._show_logs(self.distrain.settings.logs)
        self._follow()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker, seen, told = get_current_worker(), None, ""
        with self.run.record as record:
            feed, takes_up = Feed(record), not self.distrain.readonly
            while not (worker.is_cancelled or self._left.is_set()):
                takes_up = takes_up and self._recover()
                view, began = self._view, time.process_time()
                try:
                    if self.is_current and (feed.changed() or view != seen):
                        self.post_message(self.Looked(feed.look(view)))
                        seen, told = view, ""
                except DistrainError as error:
                    if str(error) != told:
                        told = str(error)
                        self.post_message(self.Looked(None, told))
                self._pause(began)

    def _recover(self) -> bool:
        """Take up a run that goes on without its supervisor; whether that can be tried again."""
        try:
            if self.run.recover():
                self._was_live = True
        except DistrainError as error:
            self.post_message(self.Looked(None, str(error)))
            return False
        return True

    def on_run_screen_looked(self, event: Looked) -> None:
        if event.frame is None:
            self.distrain.refuse(event.problem)
            return
        self._frame = event.frame
        self._paint()
        state = event.frame.snapshot.state
        if not (state.live or self._again):
            resumes = state.status != "completed" and self.run.record.last_checkpoint
            self._again = "run.resume" if resumes else "run.rerun"
            self.refresh_bindings()
            if self._was_live:
                self.distrain.tell_end(self.run)

    def _paint(self) -> None:
        frame = self._frame
        if frame is None:
            return
        # One plot in each turn of the loop, so that a key has to wait for one at most.
        for name, plot in zip(self._view.plots, self.query(PlotPane), strict=True):
            if name in frame.charts:
                self.call_later(plot.show, frame.charts[name])
        now = frame.snapshot
        self.query_one(RunHeader).show(now, frame.config, frame.diagnosis, self._hint())
        self.query_one(FailureCard).show(now, self.run.record)
        self.query_one(RankTable).show(frame.nodes, frame.diagnosis.straggler)
        self.query_one(Hardware).show(frame)
        scheduled = now.state.plan is not None and now.state.plan.scheduled
        self._logs.show(self.run.record.dir, len(now.ranks), now.state.live, scheduled)
        self._fit_tables()

    def _fit_tables(self) -> None:
        needed = max(table.virtual_size.height for table in self._tables) + BORDER
        height = min(needed, max(self.size.height // TABLES_PART, LEAST_TABLE))
        if height != self._tables_height:
            self._tables_height = height
            self.query_one("#tables").styles.height = height

    def _show_logs(self, shown: bool) -> None:
        self.set_class(shown, "-logs")
        self._panes = [*self.query(PlotPane), *([self._logs] if shown else []), *self._tables]
        self._show_row()

    @property
    def _reachable(self) -> list[Widget]:
        """Beside the logs a short screen has no room for plots."""
        if self.has_class("-logs") and self.has_class("-short"):
            return [pane for pane in self._panes if not isinstance(pane, PlotPane)]
        return self._panes

    def _make_current(self, pane: Widget) -> None:
        super()._make_current(pane)
        self._show_row()

    def _show_row(self) -> None:
        """Logs may leave room for one row of plots: that with the current one."""
        if self.has_class("-logs"):
            lower = any(plot.has_class("-current") for plot in list(self.query(PlotPane))[2:])
            self.query_one("#plots").set_class(lower, "-lower")

    # --- actions --------------------------------------------------------------------------------

    def offers(self, binding: Binding) -> bool:
        """What has ended is not to be stopped, but may be had again."""
        if not self._again:
            return super().offers(binding)
        if binding.id == self._again:
            return not self.distrain.readonly
        return binding.id != "run.stop" and super().offers(binding)

    def _choose(self, plots: tuple[str, ...]) -> None:
        super()._choose(plots)
        self.distrain.remember(plots=list(plots))

    def action_logs(self) -> None:
        shown = not self.has_class("-logs")
        self._show_logs(shown)
        self._go_to(self._logs if shown else self._panes[0])
        self.distrain.remember(logs=shown)

    def action_stop(self) -> None:
        self.distrain.stop(self.run)

    def on_node_pane_unfolded(self, event: NodePane.Unfolded) -> None:
        for table in self._tables:
            table.unfold(event.numbers)
        self._fit_tables()

    def action_fold(self) -> None:
        self._folding().fold_one()

    def action_folds(self) -> None:
        self._folding().fold_all()

    def _folding(self) -> NodePane:
        pane = self.focused
        if not (isinstance(pane, NodePane) and pane.folds):
            raise SkipAction()
        return pane

    def action_rerun(self) -> None:
        self.distrain.rerun(self.run)

    def action_resume(self) -> None:
        self.distrain.resume(self.run)

    def action_edit(self) -> None:
        self.distrain.edit(self.run)

    def action_config(self) -> None:
        from tui.screens.config import ConfigScreen

        self.app.push_screen(ConfigScreen(self.run.record))

    def action_copy(self) -> None:
        summary = msgspec.json.format(msgspec.json.encode(self.run.summary())).decode()
        self.distrain.copy(summary, "the run's summary")


def _chosen(settings: Settings) -> tuple[str, ...]:
    """The plots that were shown last, filled up with the usual ones."""
    names = [name for name in settings.plots if name in PLOTS]
    names += [name for name in USUAL if name not in names]
    return tuple(names[: len(USUAL)])
