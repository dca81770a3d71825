"""One run, live or ended: its plots, ranks, machine and logs."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from textual import work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from distrain.runners import formatting
from distrain.runners.errors import DistrainError
from distrain.runners.runs import Run
from distrain.tui import keymap
from distrain.tui.data.chart_catalog import CHART_KINDS
from distrain.tui.data.chart_choice import (
    MOST_PLOTS,
    charts_of_scripts,
    first_charts,
    offered_charts,
)
from distrain.tui.data.chart_source import DEFAULT_CHARTS, ChartView
from distrain.tui.data.copying import CopyValue, flat_values
from distrain.tui.data.run_feed import RunFeed, RunFrame
from distrain.tui.keymap import LOG, LOG_SEARCH, PLOT, RUN
from distrain.tui.screens.linked_plots import AXES_WITHOUT_EPOCHS, LinkedPlotsScreen
from distrain.tui.screens.run_logs import RunLogs
from distrain.tui.widgets.failure_card import FailureCard
from distrain.tui.widgets.hardware_pane import HardwarePane
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.log_pane import LogPane
from distrain.tui.widgets.node_pane import NodePane
from distrain.tui.widgets.plot_pane import PlotPane
from distrain.tui.widgets.rank_table import RankTable
from distrain.tui.widgets.run_header import RunHeader

# Tables are as high as they need to be, up to a third of the screen.
TABLES_PART = 3
LEAST_TABLE = 5  # lines
LEAST_PLOT = 7  # lines of a plot with its border, where there are two rows of plots
BORDER = 2  # lines


def failed_before_first_step(frame: RunFrame) -> bool:
    """Return whether there is nothing to plot, because the run failed before it could train."""
    return frame.failure is not None and not (frame.snapshot.step or frame.snapshot.logged_names)


class RunScreen(LinkedPlotsScreen):
    """Show the frames that a thread reads from the record of a run."""

    HELP = (
        "A run, live or ended. Tab goes to the next pane, {app.full} shows one pane only, Esc goes "
        "back; the run continues without the app. Plots share their x axis, zoom and cursor."
    )
    KEYS = (RUN, PLOT, LOG, LOG_SEARCH)
    BINDINGS = [*keymap.make_bindings(RUN, PLOT), *LinkedPlotsScreen.PANE_BINDINGS]  # noqa: RUF012

    class FrameRead(Message):
        """A new frame of the run, or why the record cannot be read."""

        def __init__(self, frame: RunFrame | None, problem: str = "") -> None:
            super().__init__()
            self.frame = frame
            self.problem = problem

    class RecoveryFailed(Message):
        """Why the run's supervisor cannot be restarted."""

        def __init__(self, problem: str) -> None:
            super().__init__()
            self.problem = problem

    def __init__(self, run: Run) -> None:
        self._is_script = run.record.config.is_script
        super().__init__(() if self._is_script else first_charts(CHART_KINDS, self._usual_plots()))
        if self._is_script:
            self.view = self.view._replace(axis="time")
        self.run = run
        self.shown_id = run.id
        self.frame: RunFrame | None = None
        self._was_live = run.is_live
        self._restart_key = ""  # after its end: the id of the key that resumes or reruns it
        self._problem = ""  # why the record cannot be read, from then on
        self._is_stalled = False
        self._has_given_way = False  # the plots, to the log of a run without a step
        self._tables_height = 0

    def compose(self) -> ComposeResult:
        yield RunHeader()
        yield FailureCard()
        with Container(id="plots"):
            for index in range(MOST_PLOTS):
                yield PlotPane(id=f"plot-{index}")
        yield LogPane(id="logs")
        with Container(id="tables"):
            yield RankTable("Ranks", id="ranks")
            yield HardwarePane("Host", id="hardware")
        yield KeyBar()

    def on_mount(self) -> None:
        self._header = self.query_one(RunHeader)
        self._failure_card = self.query_one(FailureCard)
        self._plots = list(self.query(PlotPane))
        self._rank_table = self.query_one(RankTable)
        self._hardware = self.query_one(HardwarePane)
        self._tables = [self._rank_table, self._hardware]
        self._logs = self.query_one(LogPane)
        self._run_logs = RunLogs(self, self._logs, self.run.record.dir, lambda: self.is_watched)
        self._set_up(*self._plots, *self._tables)
        wants_logs = self.distrain.settings.shows_logs(self._kind)
        self._show_logs(wants_logs and not self.run.is_observed)  # its output is elsewhere
        self._run_logs.start()
        self._follow()

    def on_unmount(self) -> None:
        self._run_logs.stop()

    @property
    def _kind(self) -> str:
        """Return the kind of run by which it is remembered whether the logs are shown."""
        if self.run.dir.parent.parent.joinpath("bench.json").is_file():
            return "bench"
        launcher = self.run.record.config.launcher
        return "slurm" if launcher == "slurm" else "script" if self._is_script else "preset"

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker = get_current_worker()
        may_recover = not self.distrain.readonly
        last_view: ChartView | None = None
        last_problem = ""
        with self.run.record as record:
            feed = RunFeed(record)
            while not (worker.is_cancelled or self._has_left.is_set()):
                may_recover = may_recover and self._recover()
                view = self.view
                cpu_before = time.process_time()
                try:
                    # Looked at while another screen covers this one, a change would be forgotten.
                    if self.is_watched and (
                        feed.has_changed() or view != last_view or last_problem
                    ):
                        self.post_message(self.FrameRead(feed.read(view)))
                        last_view = view
                        last_problem = ""
                except DistrainError as error:
                    if str(error) != last_problem:
                        last_problem = str(error)
                        self.post_message(self.FrameRead(None, last_problem))
                self._wait(cpu_before)

    def _recover(self) -> bool:
        """Restart the supervisor of a run that continues without it. Return whether to try again
        later.
        """
        try:
            if self.run.recover():
                self._was_live = True
        except DistrainError as error:
            self.post_message(self.RecoveryFailed(str(error)))
            return False
        return True

    def on_run_screen_recovery_failed(self, event: RecoveryFailed) -> None:
        self.distrain.refuse(event.problem)

    def on_run_screen_frame_read(self, event: FrameRead) -> None:
        if event.frame is None:
            self._problem = event.problem
            self.distrain.refuse(event.problem)
            self._header.show_problem(self.run.id, event.problem)
            return
        self._problem = ""
        self.frame = event.frame
        self._choose_first_plots(event.frame)
        if not self._has_given_way and failed_before_first_step(event.frame):
            self._has_given_way = True
            self._show_logs(True)
        self._paint()
        state = event.frame.snapshot.state
        if self._is_stalled != (state.current_stall is not None):
            self._is_stalled = not self._is_stalled
            self.refresh_bindings()
        if not (state.live or self._restart_key):
            resumes = state.status != "completed" and self.run.record.resumes_from
            self._restart_key = "run.resume" if resumes else "run.rerun"
            self.refresh_bindings()
            if self._was_live:
                self.distrain.sessions.report_end(self.run, state.ended)

    def on_log_pane_page_requested(self, event: LogPane.PageRequested) -> None:
        self._run_logs.read(event)

    def on_log_pane_save_requested(self, event: LogPane.SaveRequested) -> None:
        self._run_logs.save(event.name)

    def _paint(self) -> None:
        frame = self.frame
        if frame is None:
            return
        # One plot in each turn of the event loop: a key waits for at most one.
        for name, plot in zip(self.view.plots, self._plots, strict=False):
            if name in frame.charts:
                self.call_later(plot.show, frame.charts[name])
        now = frame.snapshot
        if not self._problem:
            self._header.show(now, frame.config, frame.diagnosis, self._hint(), frame.warnings)
        self._failure_card.show(frame.failure, without_log=self.has_class("-logs"))
        self._rank_table.show(
            frame.nodes,
            frame.diagnosis.straggler,
            is_script=frame.config.is_script,
            stall=now.stall,
            error=None if now.state.live else now.state.error,
        )
        self._hardware.show(frame)
        scheduled = now.state.plan is not None and now.state.plan.scheduled
        self._logs.show(len(now.ranks), now.state.live, scheduled)
        if self.has_class("-logs") and self._logs.wants_suggestion:
            self._suggest_log()
        self._fit_tables()

    def _check_layout(self) -> None:
        self._fit_rows()
        super()._check_layout()

    def _fit_rows(self) -> None:
        """Show one row of plots where two would be too low, as below the card of a failure."""
        has_rows = len(self.view.plots) > 1 and not (
            self.has_class("-narrow") or self.has_class("-short")
        )
        has_room_for_two = self.query_one("#plots").size.height >= 2 * LEAST_PLOT
        self.set_class(has_rows and not has_room_for_two, "-one-row")

    def _fit_tables(self) -> None:
        needed = max(table.virtual_size.height for table in self._tables) + BORDER
        height = min(needed, max(self.size.height // TABLES_PART, LEAST_TABLE))
        if height != self._tables_height:
            self._tables_height = height
            self.query_one("#tables").styles.height = height

    def _suggest_log(self) -> None:
        error = self.frame.snapshot.state.error if self.frame else None
        self._logs.suggest(self._run_logs.suggest(self._logs.names, error))

    def _show_logs(self, shown: bool) -> None:
        self.set_class(shown, "-logs")
        self.panes = [*self._plots, *self._tables]
        if shown:
            self.panes.insert(-len(self._tables), self._logs)
        self._show_row()

    @property
    def _reachable(self) -> list[Widget]:
        """Return the panes without the plots where the logs replace them, on a short screen."""
        if self.has_class("-logs") and self.has_class("-short"):
            return [pane for pane in self.panes if not isinstance(pane, PlotPane)]
        return super()._reachable

    def _make_current(self, pane: Widget) -> None:
        super()._make_current(pane)
        self._show_row()

    def _show_row(self) -> None:
        """Show the row of plots with the current one, where there is room for one row."""
        lower = any(plot.has_class("-current") for plot in self._plots[2:])
        self.query_one("#plots").set_class(lower, "-lower")

    # --- actions --------------------------------------------------------------------------------

    def offers(self, binding: Binding) -> bool:
        """Show, after the end, the key that resumes or reruns the run instead of the stop key.

        The key that shows the stacks is shown in a stall.
        """
        if binding.id == "run.stacks":
            return self._is_stalled
        if not self._restart_key:
            return super().offers(binding)
        if binding.id == self._restart_key:
            return not (self.distrain.readonly or self.run.is_observed)
        return binding.id != "run.stop" and super().offers(binding)

    def obstacle(self, id: str) -> str:
        state = self.frame.snapshot.state if self.frame else None
        if id == "run.stop" and state and not state.live:
            return "The run has ended."
        if id == "run.resume" and state and state.live:
            return "The run has not ended."
        if id in ("run.resume", "run.rerun") and self.run.is_observed:
            return "distrain did not start the program."
        if id == "run.resume" and not (self._is_script or self.run.record.resumes_from):
            return "The run has no checkpoint."
        if id in ("run.fold", "run.folds") and not any(table.folds for table in self._tables):
            return "All rows are shown already."
        return super().obstacle(id)

    def _choose_plots(self, plots: tuple[str, ...]) -> None:
        super()._choose_plots(plots)
        if not self._is_script:
            self.distrain.remember(plots=list(plots))

    def _choose_first_plots(self, frame: RunFrame) -> None:
        """Show plots that have values, as soon as they are known, until the person chooses."""
        if not frame.snapshot.has_epochs:
            self._offer_axes(AXES_WITHOUT_EPOCHS)
        offered = offered_charts(frame.snapshot, self._is_script, frame.known_charts)
        has_nothing = failed_before_first_step(frame)
        if offered == self._offered and not (has_nothing and self.view.plots):
            return
        self._offered = offered
        if self._is_script:
            self._choose_axis(frame)
        if not self._has_chosen:
            preferred = charts_of_scripts(offered) if self._is_script else self._usual_plots()
            self._set_view(plots=() if has_nothing else first_charts(offered, preferred))

    def _choose_axis(self, frame: RunFrame) -> None:
        """Show a script by steps once it reports or logs some."""
        has_steps = frame.snapshot.step or frame.snapshot.logged_names
        self._offer_axes(AXES_WITHOUT_EPOCHS if has_steps else ("time",))
        if not self._has_chosen:
            self._set_view(axis=self.axes[0])

    def _usual_plots(self) -> list[str]:
        """Return the plots that were shown last, then the usual ones."""
        return [*self.distrain.settings.plots, *DEFAULT_CHARTS]

    def action_logs(self) -> None:
        shown = not self.has_class("-logs")
        self._show_logs(shown)
        if shown:
            self._suggest_log()
        self._go_to(self._logs if shown else self._reachable[0])
        logs = {**self.distrain.settings.logs_by_kind, self._kind: shown}
        self.distrain.remember(logs=logs)

    def action_stop(self) -> None:
        self.distrain.sessions.stop(self.run)

    def on_node_pane_unfolded(self, event: NodePane.Unfolded) -> None:
        for table in self._tables:
            table.unfold(event.numbers)
        self._fit_tables()

    def action_fold(self) -> None:
        self._folding_pane().fold_one()

    def action_folds(self) -> None:
        self._folding_pane().fold_all()

    def _folding_pane(self) -> NodePane:
        pane = self.focused
        if not (isinstance(pane, NodePane) and pane.folds):
            raise SkipAction()
        return pane

    def action_rerun(self) -> None:
        self.distrain.sessions.rerun(self.run)

    def action_resume(self) -> None:
        self.distrain.sessions.resume(self.run)

    def action_edit(self) -> None:
        self.distrain.sessions.edit(self.run)

    def action_export(self) -> None:
        self.distrain.exports.export(self.run)

    def action_stacks(self) -> None:
        from distrain.tui.screens.stacks_screen import StacksScreen

        self.app.push_screen(StacksScreen(self.run))

    def action_config(self) -> None:
        from distrain.tui.screens.config_screen import ConfigScreen

        self.app.push_screen(ConfigScreen(self.run.record))

    def copy_values(self) -> list[CopyValue]:
        record = self.run.record
        summary = self.run.summary()
        command = formatting.shell_words(record.state.command)
        as_json = msgspec.json.format(msgspec.json.encode(summary)).decode()
        values = [
            CopyValue("id", self.run.id),
            CopyValue("folder", str(record.dir)),
            CopyValue("command", command),
            CopyValue("summary as JSON", as_json),
            *flat_values(msgspec.to_builtins(summary)),
        ]
        config = flat_values(record.config.to_dict())
        values += [CopyValue(f"config {key}", f"{key}={text}") for key, text in config]
        return [value for value in values if value.text]

    @property
    def folder(self) -> Path:
        return self.run.record.dir
