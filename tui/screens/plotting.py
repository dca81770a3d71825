"""What screens with plots share: panes to go through, one x axis, zoom and cursor for all plots."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Any

from textual.widget import Widget

from tui import keymap
from tui.data.plots import PLOTS, View
from tui.plotting.picture import STRONGEST
from tui.screens.base import AppScreen
from tui.screens.dialogs import PickOne
from tui.widgets.plot import PlotPane

AXES = ("step", "epoch", "time")
LOOK_S, RAREST_S = 0.5, 2.0  # between two looks; the supervisor commits every half second
SHARE = 0.08  # of a core is what looking on may take, in reading and in painting


class PlottingScreen(AppScreen):
    """A screen that a thread feeds: `_view` is what it is to read next, `_wake` its alarm.

    `_panes` are what tab goes through. Where a screen has room for one pane of an area, it is
    the one that is `-current`.
    """

    CHARTS: Collection[str] = PLOTS  # that a plot may show
    PANE_BINDINGS = (keymap.hidden("tab", "pane(1)"), keymap.hidden("shift+tab", "pane(-1)"))

    def __init__(self, plots: tuple[str, ...]) -> None:
        super().__init__()
        self._panes: list[Widget] = []
        self._view = View(plots=plots, axis=self.distrain.settings.axis)
        self._wake, self._left = threading.Event(), threading.Event()

    def on_unmount(self) -> None:
        self._left.set()
        self._wake.set()

    def _see(self, **changes: Any) -> None:
        self._view = self._view._replace(**changes)
        self._wake.set()

    def _pause(self, began: float) -> None:
        """Until it is time for the next look of the thread, or a key asks for one; `began` is the
        process's CPU time before the last.
        """
        if not self._wake.wait(LOOK_S):
            taken = time.process_time() - began
            self._wake.wait(min(taken / SHARE, RAREST_S) - LOOK_S)
        self._wake.clear()

    def _paint(self) -> None:
        """Show what was read last; each screen has something else to show."""

    # --- panes ----------------------------------------------------------------------------------

    def _begin(self, *panes: Widget) -> None:
        """Take up the panes once they are there, plots as they were left."""
        self._panes = list(panes)
        self.watch(self, "maximized", self._paint_soon, init=False)
        self.app.theme_changed_signal.subscribe(self, lambda _: self._paint_soon())
        for plot in self.query(PlotPane):
            plot.log_y = self.distrain.settings.log_y
            plot.smooth = self.distrain.settings.smooth
        for pane in reversed(panes):
            self._make_current(pane)
        self._go_to(panes[0])

    @property
    def _reachable(self) -> list[Widget]:
        """Panes that are to be seen, or would be if they were current."""
        return self._panes

    def action_pane(self, direction: int) -> None:
        """The next pane; on a small screen it takes the place of the one before."""
        panes = self._reachable
        now = panes.index(self.focused) if self.focused in panes else -1
        self._go_to(panes[(now + direction) % len(panes)])

    def _go_to(self, pane: Widget) -> None:
        hidden = not pane.region
        self._make_current(pane)
        pane.focus()
        if self.maximized:
            self.maximize(pane, container=False)
        if hidden:
            self.call_after_refresh(self._paint)

    def _make_current(self, pane: Widget) -> None:
        for other in pane.parent.children if pane.parent else ():
            other.set_class(other is pane, "-current")

    def _hint(self) -> str:
        hidden = sum(not pane.region for pane in self._reachable)
        return f"tab: {hidden} more" if hidden else ""

    def on_resize(self) -> None:
        self._paint_soon()

    def _paint_soon(self) -> None:
        """Once panes have the sizes that they are about to get."""
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
        smooth = (self._plot().smooth + 1) % (STRONGEST + 1)
        for plot in self.query(PlotPane):
            plot.smooth = smooth
        self.distrain.remember(smooth=smooth)

    def action_metric(self) -> None:
        at = list(self.query(PlotPane)).index(self._plot())
        plots = self._view.plots

        def choose(name: str | None) -> None:
            if name:
                self._choose((*plots[:at], name, *plots[at + 1 :]))

        options = [(name, PLOTS[name].title) for name in self.CHARTS]
        self.app.push_screen(PickOne("What this plot shows", options, plots[at]), choose)

    def _choose(self, plots: tuple[str, ...]) -> None:
        self._see(plots=plots)

    def action_zoom(self, factor: float) -> None:
        self._see(span=self._plot().zoomed(factor))

    def action_pan(self, direction: int) -> None:
        self._see(span=self._plot().panned(direction))

    def action_whole(self) -> None:
        self._point_at(None)
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
