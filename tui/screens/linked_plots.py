"""The base of screens whose plots share one x axis, zoom and cursor."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from textual.widget import Widget

from distrain.runners import formatting
from distrain.tui import keymap
from distrain.tui.data.chart_catalog import chart_kind
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.history import describe_unseen
from distrain.tui.data.jump import JumpTarget
from distrain.tui.dialogs.pick_one import PickOneDialog
from distrain.tui.plotting.characters import choose, replacements
from distrain.tui.plotting.chart_layout import STRONGEST
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.plot_pane import PlotPane

AXES = ("step", "epoch", "time")
AXES_WITHOUT_EPOCHS = ("step", "time")
POLL_S = 0.5  # between two reads of the records; the supervisor commits as often
LONGEST_POLL_S = 2.0
CPU_SHARE = 0.045  # of one core: what reading and painting may use


class LinkedPlotsScreen(AppScreen):
    """A screen with plots that a thread of the subclass feeds with data.

    The thread reads what `view` asks for and sleeps in `_wait`; `_set_view` wakes it. Tab goes
    through `panes`. Where an area has room for one pane only, it shows the one with the class
    `-current`.
    """

    axes: Sequence[str] = AXES
    PANE_BINDINGS = (
        keymap.make_hidden_binding("tab", "pane(1)"),
        keymap.make_hidden_binding("shift+tab", "pane(-1)"),
    )

    def __init__(self, plots: tuple[str, ...]) -> None:
        super().__init__()
        self.panes: list[Widget] = []
        self.view = ChartView(plots=plots, axis=self.distrain.settings.axis)
        self._hidden = 0  # panes, as the header says
        self._has_chosen = False  # the person, what to show
        self._offered: list[str] | None = None  # what a plot may show, once it is known
        self._wake = threading.Event()
        self._has_left = threading.Event()

    def on_unmount(self) -> None:
        self._has_left.set()
        self._wake.set()

    def _change_view(self, **changes: Any) -> None:
        """Show what the person asks for; the screen chooses nothing by itself from then on."""
        self._has_chosen = True
        self._set_view(**changes)

    def _set_view(self, **changes: Any) -> None:
        before = self.view.plots
        self.view = self.view._replace(**changes)
        if "plots" in changes:
            self._forget_zooms(before)
            self._fit_plots()
        self._wake.set()

    def _forget_zooms(self, before: Sequence[str]) -> None:
        """Show the whole y axis of what replaces another plot: a range of one means nothing there.

        `before` are the plots until now.
        """
        for at, plot in enumerate(self.query(PlotPane)):
            if before[at : at + 1] != self.view.plots[at : at + 1]:
                plot.look = plot.look._replace(y_span=None)

    def _fit_plots(self) -> None:
        """Hide the panes without a plot; if one of them has the focus, go to the first pane."""
        count = len(self.view.plots)
        for number in range(len(self.query(PlotPane))):
            self.set_class(number == count, f"-only-{number}")
        for index, plot in enumerate(self.query(PlotPane)):
            plot.set_class(index >= count, "-unused")
            if index >= count and plot.has_class("-current"):
                self._make_current(self.query(PlotPane).first())
        if self.focused is not None and self.focused.has_class("-unused"):
            self._go_to(self._reachable[0])

    def _wait(self, cpu_before: float) -> None:
        """Sleep in the thread until the next read is due or the view changes.

        `cpu_before` is the CPU time of the process (s) before the last read.
        """
        if not self._wake.wait(POLL_S):
            used = time.process_time() - cpu_before
            self._wake.wait(min(used / CPU_SHARE, LONGEST_POLL_S) - POLL_S)
        self._wake.clear()

    def _paint(self) -> None:
        """Show what was read last; subclasses override this."""

    # --- panes ----------------------------------------------------------------------------------

    def _set_up(self, *panes: Widget) -> None:
        """Use these panes once they are mounted; plots look as they did the last time."""
        self.panes = list(panes)
        self.screen_layout_refresh_signal.subscribe(self, lambda _: self._check_layout())
        self.watch(self, "maximized", self._paint_soon, init=False)
        self.app.theme_changed_signal.subscribe(self, lambda _: self._paint_soon())
        self.distrain.history_changed.subscribe(self, lambda _: self._paint_soon())
        for plot in self.query(PlotPane):
            settings = self.distrain.settings
            plot.look = plot.look._replace(log_y=settings.log_y, smooth=settings.smooth)
            plot.replacements = replacements(choose(settings.plots_in, os.environ))
        for pane in reversed(panes):
            self._make_current(pane)
        self._go_to(panes[0])

    @property
    def _reachable(self) -> list[Widget]:
        """Return the panes that are visible, or would be if they were current."""
        return [pane for pane in self.panes if not pane.has_class("-unused")]

    def action_pane(self, direction: int) -> None:
        """Go to the next pane; on a small screen it replaces the one before."""
        panes = self._reachable
        current = panes.index(self.focused) if self.focused in panes else -1
        self._go_to(panes[(current + direction) % len(panes)])

    def _go_to(self, pane: Widget) -> None:
        was_hidden = not pane.region
        self._make_current(pane)
        self.set_focus(pane)
        if self.maximized:
            self.maximize(pane, container=False)
        if was_hidden:
            self.call_after_refresh(self._paint)

    def jump_targets(self) -> list[JumpTarget]:
        """Return the panes that are not visible, or would be if they were current."""
        panes = [pane for pane in self._reachable if not pane.region]
        return [
            JumpTarget(0, 0, partial(self._go_to, pane), str(pane.border_title or pane.name or ""))
            for pane in panes
        ]

    def _make_current(self, pane: Widget) -> None:
        for other in pane.parent.children if pane.parent else ():
            other.set_class(other is pane, "-current")

    def _check_layout(self) -> None:
        """Paint again if another number of panes is hidden after a layout."""
        if self._count_hidden() != self._hidden:
            self._paint_soon()

    def _count_hidden(self) -> int:
        return sum(not pane.region for pane in self._reachable)

    def _hint(self) -> str:
        """Return how many panes are hidden, for the header."""
        self._hidden = hidden = self._count_hidden()
        unseen = keymap.insert_keys(describe_unseen(self.distrain.history.unseen), self.app)
        others = f"{formatting.plural(hidden, 'more pane')} (tab)" if hidden else ""
        parts = [unseen, others]
        return " · ".join(part for part in parts if part)

    def on_resize(self) -> None:
        self._paint_soon()

    def _paint_soon(self) -> None:
        """Paint after the next layout, when panes have their new sizes."""
        self.call_after_refresh(self._paint)

    # --- plots ----------------------------------------------------------------------------------

    def _focused_plot(self) -> PlotPane:
        """Return the plot that has the focus, else the first."""
        focused = self.focused
        return focused if isinstance(focused, PlotPane) else self.query(PlotPane).first()

    def _offer_axes(self, axes: Sequence[str]) -> None:
        """Offer these x axes from now on, and show the first if another one is shown."""
        self.axes = axes
        if self.view.axis not in axes:
            self._set_view(axis=axes[0], span=None)

    def action_axis(self) -> None:
        axis = self.axes[(self.axes.index(self.view.axis) + 1) % len(self.axes)]
        self._set_cursor(None)
        self._change_view(axis=axis, span=None)
        self.distrain.remember(axis=axis)

    def action_log(self) -> None:
        log_y = not self._focused_plot().look.log_y
        self._change_looks(log_y=log_y, y_span=None)
        self.distrain.remember(log_y=log_y)

    def action_cut(self) -> None:
        self._change_looks(cut=not self._focused_plot().look.cut, y_span=None)

    def action_zoom_y(self, factor: float) -> None:
        plot = self._focused_plot()
        plot.look = plot.look._replace(y_span=plot.zoomed_y(factor))

    def action_pan_y(self, direction: int) -> None:
        plot = self._focused_plot()
        plot.look = plot.look._replace(y_span=plot.panned_y(direction))

    def action_others(self) -> None:
        plot = self._focused_plot()
        plot.look = plot.look._replace(hidden=plot.all_names - plot.look.hidden)

    def action_solo(self) -> None:
        plot = self._focused_plot()
        plot.look = plot.look._replace(hidden=plot.with_next_alone())

    def action_smooth(self) -> None:
        smooth = (self._focused_plot().look.smooth + 1) % (STRONGEST + 1)
        self._change_looks(smooth=smooth)
        self.distrain.remember(smooth=smooth)

    def _change_looks(self, **changes: Any) -> None:
        """Change how all plots look."""
        for plot in self.query(PlotPane):
            plot.look = plot.look._replace(**changes)

    def action_metric(self) -> None:
        plots = self.view.plots
        if not self._offered:
            self.distrain.refuse("there is nothing to plot yet")
            return
        index = list(self.query(PlotPane)).index(self._focused_plot()) if plots else 0

        def choose(name: str | None) -> None:
            if name:
                self._choose_plots((*plots[:index], name, *plots[index + 1 :]))

        options = [(name, chart_kind(name).title) for name in self._offered]
        self.app.push_screen(
            PickOneDialog("Metric of this plot", options, plots[index] if plots else ""), choose
        )

    def _choose_plots(self, plots: tuple[str, ...]) -> None:
        self._change_view(plots=plots)

    def action_zoom(self, factor: float) -> None:
        self._change_view(span=self._focused_plot().zoomed(factor))

    def action_pan(self, direction: int) -> None:
        self._change_view(span=self._focused_plot().panned(direction))

    def action_whole(self) -> None:
        self._set_cursor(None)
        self._change_looks(y_span=None)
        self._change_view(span=None)

    def action_cursor(self, direction: int) -> None:
        self._set_cursor(self._focused_plot().step_cursor(direction))

    def on_plot_pane_pointed(self, event: PlotPane.Pointed) -> None:
        self._set_cursor(event.x)

    def on_plot_pane_zoomed(self, event: PlotPane.Zoomed) -> None:
        self._change_view(span=event.span)

    def _set_cursor(self, x: float | None) -> None:
        for plot in self.query(PlotPane):
            plot.cursor = x
