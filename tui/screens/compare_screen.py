"""Several runs overlaid: their curves in shared plots, their results, and how they differ."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import work
from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from distrain.runners.errors import DistrainError
from distrain.runners.runs import Run
from distrain.tui import keymap
from distrain.tui.data.chart_choice import (
    MOST_PLOTS,
    charts_of_scripts,
    compared_charts,
    first_charts,
)
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.run_comparison import ComparisonFeed, ComparisonFrame
from distrain.tui.keymap import COMPARE, PLOT
from distrain.tui.screens.linked_plots import AXES_WITHOUT_EPOCHS, LinkedPlotsScreen
from distrain.tui.widgets.diff_pane import DiffPane, RunSummaries
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.plot_pane import PlotPane
from distrain.tui.widgets.text_pane import TextPane

PREFERRED = ("loss", "throughput", "evaluation", "lr")


class CompareScreen(LinkedPlotsScreen):
    """Show the comparisons that a thread makes from the records of the runs."""

    HELP = (
        "The runs are overlaid by step, by epoch or by the time since each started ({plot.axis}). "
        "Tab goes to the next pane, {app.full} shows one pane only. Plots share their x axis, zoom "
        "and cursor."
    )
    KEYS: tuple[str, ...] = (COMPARE, PLOT)
    BINDINGS = [*keymap.make_bindings(COMPARE, PLOT), *LinkedPlotsScreen.PANE_BINDINGS]  # noqa: RUF012

    class FrameRead(Message):
        """The comparison now, or why there is none."""

        def __init__(self, frame: ComparisonFrame | None, problem: str = "") -> None:
            super().__init__()
            self.frame = frame
            self.problem = problem

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__(())
        self.runs = runs
        self._marks = self.distrain.run_marks.in_one_picture([run.id for run in runs])
        self.frame: ComparisonFrame | None = None
        self._shows_all_keys = False
        self._reported_problems: set[str] = set()

    def shows(self, id: str) -> bool:
        return any(run.id == id for run in self.runs)

    def compose(self) -> ComposeResult:
        yield self._make_summaries()
        with Container(id="panes"):
            with Container(id="plots"):
                for index in range(MOST_PLOTS):
                    yield PlotPane(id=f"plot-{index}")
            yield DiffPane("Config", id="diff")
        yield KeyBar()

    def _make_summaries(self) -> TextPane:
        """Return the table above the plots."""
        return RunSummaries(id="summaries")

    def _list_panes(self) -> list[Widget]:
        """Return the panes in the order of Tab; the first gets the focus."""
        return [*self.query(PlotPane), self.query_one(DiffPane)]

    def _show_summaries(self, frame: ComparisonFrame) -> None:
        self.query_one(RunSummaries).show(frame, self._hint())

    def on_mount(self) -> None:
        self._set_up(*self._list_panes())
        self._follow()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker = get_current_worker()
        last_view: ChartView | None = None
        try:
            feed = ComparisonFeed([run.record for run in self.runs], self._marks)
            while not (worker.is_cancelled or self._has_left.is_set()):
                view = self.view
                cpu_before = time.process_time()
                if self.is_watched and (feed.has_changed() or view != last_view):
                    last_view = view
                    self.post_message(self.FrameRead(feed.read(view)))
                self._wait(cpu_before)
        except DistrainError as error:
            self.post_message(self.FrameRead(None, str(error)))
        finally:
            for run in self.runs:
                run.record.close()

    def on_compare_screen_frame_read(self, event: FrameRead) -> None:
        problems = event.frame.problems if event.frame else [event.problem]
        for problem in problems:
            if problem not in self._reported_problems:
                self._reported_problems.add(problem)
                self.distrain.refuse(problem)
        self.frame = event.frame or self.frame
        if event.frame is not None:
            self._choose_first_plots(event.frame)
        self._paint()

    def _paint(self) -> None:
        frame = self.frame
        if frame is None:
            return
        self._show_summaries(frame)
        # Once more after the layout, which decides how many panes the hint calls hidden.
        self.call_after_refresh(self._show_summaries, frame)
        for name, plot in zip(self.view.plots, self.query(PlotPane), strict=False):
            if name in frame.charts:
                plot.show(frame.charts[name])
        self.query_one(DiffPane).show(frame.runs, self._shows_all_keys)

    # --- plots ----------------------------------------------------------------------------------

    def _choose_first_plots(self, frame: ComparisonFrame) -> None:
        """Show plots that have values, as soon as they are known, until the person chooses."""
        if not any(run.has_epochs for run in frame.runs):
            self._offer_axes(AXES_WITHOUT_EPOCHS)
        offered = compared_charts(frame)
        if offered == self._offered:
            return
        self._offered = offered
        are_scripts = all(run.is_script for run in frame.runs)
        if not self._has_chosen:
            preferred = charts_of_scripts(offered) if are_scripts else PREFERRED
            self._set_view(plots=first_charts(offered, preferred))

    # --- panes ----------------------------------------------------------------------------------

    def _make_current(self, pane: Widget) -> None:
        """Replace the plots by the differences on a small screen."""
        super()._make_current(pane)
        self.set_class(isinstance(pane, DiffPane), "-diff")

    def action_differences(self) -> None:
        self._shows_all_keys = not self._shows_all_keys
        self._paint()
