"""A chart with a cursor, whose curves can be hidden and whose axes can be zoomed."""

from __future__ import annotations

from math import isfinite

from textual import events
from textual.message import Message

from distrain.tui.data.copying import CopyValue
from distrain.tui.plotting import zoom
from distrain.tui.plotting.zoom import Span
from distrain.tui.widgets.painted_chart import PaintedChart

_WHEEL = 0.8  # of the span stays in sight at one notch
_DRAGGED = 2  # least cells of a drag


class PlotPane(PaintedChart, can_focus=True):
    """Shows a chart, and posts where the mouse points and which span it asks for. The screen
    decides what happens.
    """

    HELP = (
        "Each line has its own colour and mark; ○ is the mean of all ranks. Dim dots behind a line "
        "are minima and maxima, or the raw values of a smoothed line; ▴ and ▾ are outliers. The "
        "legend shows the last values, or those at the cursor (arrow keys or mouse). The mouse "
        "wheel zooms, and dragging selects a part."
    )

    class Pointed(Message):
        """The mouse points at an x, or has left the plot (None)."""

        def __init__(self, pane: PlotPane, x: float | None) -> None:
            super().__init__()
            self.pane = pane
            self.x = x

        @property
        def control(self) -> PlotPane:
            return self.pane

    class Zoomed(Message):
        """The mouse selects a part of the x axis; None for all of it."""

        def __init__(self, pane: PlotPane, span: Span | None) -> None:
            super().__init__()
            self.pane = pane
            self.span = span

        @property
        def control(self) -> PlotPane:
            return self.pane

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self._pointed: float | None = None

    def copy_values(self) -> list[CopyValue]:
        """Return the last value of each line, or that at the cursor."""
        layout = self.current_layout()
        values = [(line.name, layout.value(line, self.cursor)) for line in self.chart.lines]
        title = self.chart.title
        return [
            CopyValue(name or title, f"{value:.10g}") for name, value in values if isfinite(value)
        ]

    # --- what the screen calls ---

    def step_cursor(self, direction: int) -> float | None:
        """Return the x of the next column with a point to the right (1) or left (-1) of the cursor.

        Without a cursor it is the last column; None without points.
        """
        layout = self.current_layout()
        drawn = layout.drawn
        at = layout.cell(self.cursor)
        if at is None or not drawn:
            return drawn[-1] if drawn else None
        cells = [layout.cell(x) or 0 for x in drawn]
        if direction > 0:
            return next((x for x, cell in zip(drawn, cells, strict=True) if cell > at), drawn[-1])
        before = [x for x, cell in zip(drawn, cells, strict=True) if cell < at]
        return before[-1] if before else drawn[0]

    def zoomed(self, factor: float, about: float | None = None) -> Span | None:
        """Return the x span scaled around an x, the cursor or the middle; None for all."""
        about = self.cursor if about is None else about
        return zoom.zoom_x(self.current_layout(), self.whole, factor, about)

    def panned(self, direction: int) -> Span | None:
        """Return the x span moved to the right (1) or left (-1); None for all."""
        return zoom.pan_x(self.current_layout(), self.whole, direction)

    def zoomed_y(self, factor: float) -> Span | None:
        """Return the y range scaled around its middle; None for all."""
        return zoom.zoom_y(self.current_layout(), factor)

    def panned_y(self, direction: int) -> Span | None:
        """Return the y range moved up (1) or down (-1); None for all."""
        return zoom.pan_y(self.current_layout(), direction)

    @property
    def all_names(self) -> frozenset[str]:
        return frozenset(line.name for line in self.chart.lines)

    def with_next_alone(self) -> frozenset[str]:
        """Return the names to hide so that only the line after the one that is alone is shown.

        After the last line all are shown.
        """
        names = [line.name for line in self.chart.lines]
        shown = [at for at, name in enumerate(names) if name not in self.look.hidden]
        following = shown[0] + 1 if len(shown) == 1 else 0
        if len(names) < 2 or following == len(names):
            return frozenset()
        return self.all_names - {names[following]}

    # --- the mouse ---

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point(self._x_under(event))

    def on_leave(self) -> None:
        self._point(None)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1 and self._x_under(event) is not None:
            self.capture_mouse()
            self.drag_start = self._cell_under(event)
            self.refresh_columns(self.drag_start)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        start = self.drag_start
        self.drag_start = None
        if start is None:
            return
        self.release_mouse()
        self.refresh_columns(start)
        here = self._cell_under(event)
        layout = self.current_layout()
        if abs(here - start) >= _DRAGGED:
            span = layout.x_at(min(here, start)), layout.x_at(max(here, start))
            self.post_message(self.Zoomed(self, span))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, _WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1 / _WHEEL)

    def _wheel(self, event: events.MouseEvent, factor: float) -> None:
        x = self._x_under(event)
        if x is None:
            return
        event.stop()
        event.prevent_default()
        span = self.zoomed(factor, about=x)
        if span != self.chart.span:
            self.post_message(self.Zoomed(self, span))

    def _point(self, x: float | None) -> None:
        if x != self._pointed:
            self._pointed = x
            self.post_message(self.Pointed(self, x))

    def _cell_under(self, event: events.MouseEvent) -> int:
        """Return the nearest cell of the plot area."""
        layout = self.current_layout()
        x = event.get_content_offset_capture(self).x - layout.left
        return max(0, min(x, layout.cells - 1))

    def _x_under(self, event: events.MouseEvent) -> float | None:
        """Return the x under the mouse; None outside of the plot area or without points."""
        layout = self.current_layout()
        offset = event.get_content_offset_capture(self)
        inside = 0 <= offset.x - layout.left < layout.cells and 0 <= offset.y < layout.height
        return layout.x_at(offset.x - layout.left) if inside and not layout.empty else None
