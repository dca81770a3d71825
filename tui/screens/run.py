"""One run, live or long ended: its plots, ranks, machine and logs."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
from textual import work
from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.widgets import Footer
from textual.worker import get_current_worker

from runners.errors import DistrainError
from runners.runs import Run
from tui import keymap
from tui.data.feed import Feed, Frame
from tui.data.plots import PLOTS, View
from tui.keymap import PLOT, RUN
from tui.screens.base import AppScreen
from tui.screens.dialogs import PickOne
from tui.widgets.failure_card import FailureCard
from tui.widgets.hardware import Hardware
from tui.widgets.plot import PlotPane
from tui.widgets.rank_table import RankTable
from tui.widgets.run_header import RunHeader

AXES = ("step", "epoch", "time")
LOOK_S = 0.5  # the supervisor commits as often
SMOOTHEST = 3
DEFAULT_PLOTS = ("loss", "throughput", "evaluation", "phases")


class RunScreen(AppScreen):
    """Shows frames that a thread reads of the record; its panes hold nothing else."""

    HELP = (
        "Tab goes from pane to pane, f shows one alone. Plots share their x axis, zoom and cursor."
    )
    KEYS = (RUN, PLOT)
    BINDINGS = [  # noqa: RUF012
        *keymap.bindings(RUN, PLOT),
        keymap.hidden("tab", "pane(1)"),
        keymap.hidden("shift+tab", "pane(-1)"),
    ]

    class Looked(Message):
        """A frame of the run, or why there is none."""

        def __init__(self, frame: Frame | None, problem: str = "") -> None:
            super().__init__()
            self.frame, self.problem = frame, problem

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self._frame: Frame | None = None
        self._was_live = run.is_live
        self._wake = threading.Event()
        chosen = self.distrain.settings
        names = [name for name in chosen.plots if name in PLOTS]
        names = (names + [name for name in DEFAULT_PLOTS if name not in names])[:4]
        self._view = View(plots=tuple(names), axis=chosen.axis)

    def compose(self) -> ComposeResult:
        yield RunHeader()
        yield FailureCard()
        with Container(id="plots"):
            for index in range(len(self._view.plots)):
                yield PlotPane(id=f"plot-{index}")
        with Container(id="tables"):
            yield RankTable("ranks", id="ranks")
            yield Hardware("machine", id="hardware")
        yield Footer()

    def on_mount(self) -> None:
        self._panes = [*self.query(PlotPane), self.query_one(RankTable), self.query_one(Hardware)]
        for plot in self.query(PlotPane):
            plot.log_y = self.distrain.settings.log_y
            plot.smooth = self.distrain.settings.smooth
        self._go_to(0)
        self._follow()

    # --- the thread that reads ------------------------------------------------------------------

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        worker, seen = get_current_worker(), None
        with self.run.record as record:
            feed = Feed(record)
            while not worker.is_cancelled:
                view = self._view
                if self.is_current and (feed.changed() or view != seen):
                    seen = view
                    try:
                        self.post_message(self.Looked(feed.look(view)))
                    except DistrainError as error:
                        self.post_message(self.Looked(None, str(error)))
                        return
                self._wake.wait(LOOK_S)
                self._wake.clear()

    def _see(self, **changes: Any) -> None:
        self._view = self._view._replace(**changes)
        self._wake.set()

    def on_run_screen_looked(self, event: Looked) -> None:
        if event.frame is None:
            self.distrain.refuse(event.problem)
            return
        self._frame = event.frame
        self._paint()
        state = event.frame.snapshot.state
        if self._was_live and not state.live:
            self.distrain.tell_end(self.run)
        self._was_live = state.live

    def _paint(self) -> None:
        frame = self._frame
        if frame is None:
            return
        now = frame.snapshot
        self.query_one(RunHeader).show(now, self.run.record, self._hint())
        self.query_one(FailureCard).show(now, self.run.record)
        for name, plot in zip(self._view.plots, self.query(PlotPane), strict=True):
            if name in frame.charts:
                plot.show(frame.charts[name])
        self.query_one(RankTable).show(now.ranks)
        self.query_one(Hardware).show(frame)

    # --- panes ----------------------------------------------------------------------------------

    def _hint(self) -> str:
        hidden = sum(1 for pane in self._panes if not pane.region)
        return f"{hidden} more panes: tab" if hidden else ""

    def action_pane(self, direction: int) -> None:
        """The next pane; on a small screen it takes the place of the one before."""
        focused = self.focused
        now = self._panes.index(focused) if focused in self._panes else -1
        self._go_to((now + direction) % len(self._panes))

    def _go_to(self, index: int) -> None:
        """Each area has one pane that is current: where there is room for one, it is that."""
        pane = self._panes[index]
        for other in pane.parent.children if pane.parent else ():
            other.set_class(other is pane, "-current")
        if not any(p.has_class("-current") for p in self._panes[-2:]):
            self._panes[-2].add_class("-current")
        pane.focus()
        self.call_after_refresh(self._paint)

    def on_resize(self) -> None:
        self.call_after_refresh(self._paint)

    # --- plots ----------------------------------------------------------------------------------

    def _plot(self) -> PlotPane:
        focused = self.focused
        return focused if isinstance(focused, PlotPane) else self.query(PlotPane).first()

    def action_axis(self) -> None:
        axis = AXES[(AXES.index(self._view.axis) + 1) % len(AXES)]
        self._point_at(None)
        self._see(axis=axis, span=None)
        self.distrain.remember(axis=axis)

    def action_log(self) -> None:
        log_y = not self._plot().log_y
        for plot in self.query(PlotPane):
            plot.log_y = log_y
        self.distrain.remember(log_y=log_y)

    def action_smooth(self) -> None:
        smooth = (self._plot().smooth + 1) % (SMOOTHEST + 1)
        for plot in self.query(PlotPane):
            plot.smooth = smooth
        self.distrain.remember(smooth=smooth)

    def action_zoom(self, factor: float) -> None:
        self._see(span=self._plot().zoomed(factor))

    def action_pan(self, direction: int) -> None:
        self._see(span=self._plot().panned(direction))

    def action_whole(self) -> None:
        self._see(span=None)

    def action_cursor(self, direction: int) -> None:
        self._point_at(self._plot().step_cursor(direction))

    def on_plot_pane_pointed(self, event: PlotPane.Pointed) -> None:
        self._point_at(event.x)

    def on_plot_pane_zoomed(self, event: PlotPane.Zoomed) -> None:
        self._see(span=event.span)

    def _point_at(self, x: float | None) -> None:
        for plot in self.query(PlotPane):
            plot.cursor = x

    def action_metric(self) -> None:
        panes = list(self.query(PlotPane))
        index = panes.index(self._plot())
        options = [(name, plot.title) for name, plot in PLOTS.items()]
        now = self._view.plots[index]

        def choose(name: str | None) -> None:
            if name:
                plots = list(self._view.plots)
                plots[index] = name
                self._see(plots=tuple(plots))
                self.distrain.remember(plots=plots)

        self.app.push_screen(PickOne("What this plot shows", options, now), choose)

    # --- the run --------------------------------------------------------------------------------

    def action_stop(self) -> None:
        self.distrain.stop(self.run)

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
        frame = self._frame
        if frame is not None:
            text = msgspec.json.format(msgspec.json.encode(self.run.summary())).decode()
            self.distrain.copy(text, "the run's summary")
