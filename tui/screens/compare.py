"""Several runs over each other: their curves in shared plots, what they came to and differ in."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import work
from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget
from textual.worker import get_current_worker

from runners.errors import DistrainError
from runners.runs import Run
from tui import keymap
from tui.data.comparison import CHARTS, Comparer, Comparison
from tui.keymap import COMPARE, PLOT
from tui.screens.plotting import PlottingScreen
from tui.widgets.diff_pane import DiffPane, RunSummaries
from tui.widgets.key_bar import KeyBar
from tui.widgets.plot import PlotPane

SHOWN = ("loss", "throughput", "evaluation", "lr")


class CompareScreen(PlottingScreen):
    """Shows comparisons that a thread makes of the runs' records."""

    HELP = (
        "Runs lie over each other by step, by epoch or by the time since each was started "
        "({plot.axis}). Tab goes from pane to pane, {app.full} shows one alone. Plots share x "
        "axis, zoom and cursor."
    )
    KEYS = (COMPARE, PLOT)
    CHARTS = CHARTS
    BINDINGS = [*keymap.bindings(COMPARE, PLOT), *PlottingScreen.PANE_BINDINGS]  # noqa: RUF012

    class Looked(Message):
        """How the runs are now, or why that cannot be told."""

        def __init__(self, found: Comparison | None, problem: str = "") -> None:
            super().__init__()
            self.found, self.problem = found, problem

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__(SHOWN)
        self.runs = runs
        self._found: Comparison | None = None
        self._everything = False
        self._told: set[str] = set()

    def compose(self) -> ComposeResult:
        yield RunSummaries(id="summaries")
        with Container(id="panes"):
            with Container(id="plots"):
                for index in range(len(self._view.plots)):
                    yield PlotPane(id=f"plot-{index}")
            yield DiffPane("config", id="diff")
        yield KeyBar()

    def on_mount(self) -> None:
        self._begin(*self.query(PlotPane), self.query_one(DiffPane))
        self._follow()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker, seen = get_current_worker(), None
        try:
            comparer = Comparer([run.record for run in self.runs])
            while not (worker.is_cancelled or self._left.is_set()):
                view, began = self._view, time.process_time()
                if self.is_current and (comparer.changed() or view != seen):
                    seen = view
                    self.post_message(self.Looked(comparer.look(view)))
                self._pause(began)
        except DistrainError as error:
            self.post_message(self.Looked(None, str(error)))
        finally:
            for run in self.runs:
                run.record.close()

    def on_compare_screen_looked(self, event: Looked) -> None:
        problems = event.found.problems if event.found else [event.problem]
        for problem in problems:
            if problem not in self._told:
                self._told.add(problem)
                self.distrain.refuse(problem)
        self._found = event.found or self._found
        self._paint()

    def _paint(self) -> None:
        found = self._found
        if found is None:
            return
        self.query_one(RunSummaries).show(found, self._hint())
        for name, plot in zip(self._view.plots, self.query(PlotPane), strict=True):
            if name in found.charts:
                plot.show(found.charts[name])
        self.query_one(DiffPane).show(found.runs, self._everything)

    # --- panes ----------------------------------------------------------------------------------

    def _make_current(self, pane: Widget) -> None:
        """On a small screen the diff takes the place of the plots."""
        super()._make_current(pane)
        self.set_class(isinstance(pane, DiffPane), "-diff")

    def action_differences(self) -> None:
        self._everything = not self._everything
        self._paint()
