"""A plot of curves in Braille dots, with a legend that shows values at a cursor."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from distrain.tui.data.chart import Chart
from distrain.tui.data.copying import CopyValue
from distrain.tui.keymap import insert_keys
from distrain.tui.plotting import zoom
from distrain.tui.plotting.area import TWO
from distrain.tui.plotting.canvas import BLANK, ColouredText
from distrain.tui.plotting.chart_layout import (
    AXIS,
    CURSOR,
    FIRST_LINE,
    GRID,
    STRONGEST,
    TEXT,
    ChartLayout,
)
from distrain.tui.plotting.drawn_line import PlotLook
from distrain.tui.plotting.zoom import Span
from distrain.tui.widgets.border_text import fit_on_border
from distrain.tui.widgets.colours import legible_colour

_WHEEL = 0.8  # of the span stays in sight at one notch
_DRAGGED = 2  # least cells of a drag
_NAMES = {BLANK: "text", TEXT: "text", AXIS: "axis", GRID: "grid", CURSOR: "cursor"}


class PlotPane(Widget, can_focus=True):
    """Shows a chart, and posts where the mouse points and which span it asks for. The screen
    decides what happens.
    """

    HELP = (
        "Each line has its own colour and mark; ○ is the mean of all ranks. Dim dots behind a line "
        "are minima and maxima, or the raw values of a smoothed line; ▴ and ▾ are outliers. The "
        "legend shows the last values, or those at the cursor (arrow keys or mouse). The mouse "
        "wheel zooms, and dragging selects a part."
    )
    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"plot--{name}" for name in _NAMES.values()),
        "plot--behind",
    }
    DEFAULT_CSS = """
    PlotPane {
        border: round $foreground 30%;
        border-title-color: $text-muted;
        border-subtitle-color: $text-muted;
        padding: 0 1;
        &:focus { border: round $accent; border-title-color: $text; }

        & > .plot--axis { color: $text-muted; }
        & > .plot--grid { color: $foreground 25%; }
        & > .plot--text { color: $foreground; }
        & > .plot--cursor { color: $accent; text-style: bold; }
        & > .plot--behind { text-opacity: 40%; }
        &:ansi > .plot--axis, &:ansi > .plot--grid { color: ansi_default; text-style: dim; }
    }
    """

    look: reactive[PlotLook] = reactive(PlotLook(), repaint=False)
    cursor: reactive[float | None] = reactive[float | None](None, repaint=False)

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
        self._chart = Chart("", [])
        self._whole: Span | None = None
        self._chart_layout: ChartLayout | None = None
        self._strips: list[Strip] = []
        self._styles: dict[int | tuple[str, bool], Style] = {}
        self._colours: list[object] = []
        self._anchor: int | None = None
        self._pointed: float | None = None
        self.replacements: dict[int, str] = {}  # characters that the terminal lacks

    @property
    def chart(self) -> Chart:
        """Return the chart that is drawn."""
        return self._chart

    def show(self, chart: Chart) -> None:
        """Draw a chart; only lines that differ from the last one are repainted."""
        if chart is self._chart and self._chart_layout is not None:
            return
        self._whole = self._seen(chart)
        self._chart = chart
        title = f"{chart.title} ({chart.unit})" if chart.unit else chart.title
        if self._border_title is None or self._border_title.plain != title:
            self.border_title = Content(title)
        self._redraw()

    def validate_look(self, look: PlotLook) -> PlotLook:
        return look._replace(smooth=max(0, min(look.smooth, STRONGEST)))

    def watch_look(self) -> None:
        self._redraw()

    def watch_cursor(self, before: float | None, after: float | None) -> None:
        layout = self._chart_layout
        if layout is None:
            return
        self._refresh_columns(layout.cell(before), layout.cell(after))
        self._show_note(layout)
        for y, strip in self._text_lines(layout).items():
            if strip != self._strips[y]:
                self._strips[y] = strip
                self.refresh(Region(0, y, layout.width, 1))

    def copy_values(self) -> list[CopyValue]:
        """Return the last value of each line, or that at the cursor."""
        layout = self._current_layout()
        values = [(line.name, layout.value(line, self.cursor)) for line in self._chart.lines]
        title = self._chart.title
        return [
            CopyValue(name or title, f"{value:.10g}") for name, value in values if isfinite(value)
        ]

    # --- what the screen calls ---

    def step_cursor(self, direction: int) -> float | None:
        """Return the x of the next column with a point to the right (1) or left (-1) of the cursor.

        Without a cursor it is the last column; None without points.
        """
        layout = self._current_layout()
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
        return zoom.zoom_x(self._current_layout(), self._whole, factor, about)

    def panned(self, direction: int) -> Span | None:
        """Return the x span moved to the right (1) or left (-1); None for all."""
        return zoom.pan_x(self._current_layout(), self._whole, direction)

    def zoomed_y(self, factor: float) -> Span | None:
        """Return the y range scaled around its middle; None for all."""
        return zoom.zoom_y(self._current_layout(), factor)

    def panned_y(self, direction: int) -> Span | None:
        """Return the y range moved up (1) or down (-1); None for all."""
        return zoom.pan_y(self._current_layout(), direction)

    @property
    def all_names(self) -> frozenset[str]:
        return frozenset(line.name for line in self._chart.lines)

    def with_next_alone(self) -> frozenset[str]:
        """Return the names to hide so that only the line after the one that is alone is shown.

        After the last line all are shown.
        """
        names = [line.name for line in self._chart.lines]
        shown = [at for at, name in enumerate(names) if name not in self.look.hidden]
        following = shown[0] + 1 if len(shown) == 1 else 0
        if len(names) < 2 or following == len(names):
            return frozenset()
        return self.all_names - {names[following]}

    # --- drawing ---

    def render_line(self, y: int) -> Strip:
        layout = self._current_layout()
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self._style(TEXT))
        strip = self._strips[y]
        if layout.top <= y < layout.top + layout.rows:
            for cell in {layout.cell(self.cursor), self._anchor} - {None}:
                strip = self._crossed(strip, layout.left + (cell or 0))
        return strip

    def on_resize(self) -> None:
        self._redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if not self.is_mounted:
            return
        # A change of focus changes styles but no colours, so it needs no new layout.
        names = sorted(self.COMPONENT_CLASSES)
        colours = [self.background_colors, *map(self.get_component_rich_style, names)]
        if colours != self._colours:
            self._colours = colours
            self._styles.clear()
            self._chart_layout = None

    def _redraw(self) -> None:
        if not self.is_mounted or not self.size:
            self._chart_layout = None
            return
        before = self._strips
        known = self._chart_layout is not None
        layout = self._lay_out()
        self._show_note(layout)
        if not known or len(before) != len(self._strips):
            self.refresh()
            return
        changed = [y for y, strip in enumerate(self._strips) if strip != before[y]]
        if changed:
            self.refresh(*_bands(changed, layout.width))

    def _show_note(self, layout: ChartLayout) -> None:
        notes = layout.notes(self._visible_cursor is not None)
        note = fit_on_border([insert_keys(each, self.app) for each in notes], self)
        if self._border_subtitle is None or self._border_subtitle.plain != note:
            self.border_subtitle = Content(note)

    @property
    def _visible_cursor(self) -> float | None:
        """Return the x of the cursor unless it is outside of the span."""
        cursor, span = self.cursor, self._chart.span
        is_outside = cursor is not None and span and not span[0] <= cursor <= span[1]
        return None if is_outside else cursor

    def _current_layout(self) -> ChartLayout:
        layout = self._chart_layout
        if layout is None or (layout.width, layout.height) != (self.size or (1, 1)):
            layout = self._lay_out()
        return layout

    def _lay_out(self) -> ChartLayout:
        layout = ChartLayout(self._chart, *self.size, self.look)
        self._chart_layout = layout
        blank = self._strip([], layout.width)
        self._strips = [blank] * layout.height
        for y, runs in enumerate(layout.plot(), layout.top):
            self._strips[y] = self._strip(runs, layout.width)
        for y, strip in self._text_lines(layout).items():
            self._strips[y] = strip
        return layout

    def _text_lines(self, layout: ChartLayout) -> dict[int, Strip]:
        """Return the lines that depend on the cursor: the legend and the x labels."""
        cursor = self._visible_cursor
        lines = dict(enumerate(layout.axis_lines(cursor), layout.top + layout.rows))
        lines |= enumerate(layout.legend(cursor))
        return {y: self._strip(runs, layout.width) for y, runs in lines.items()}

    def _strip(self, runs: Iterable[ColouredText], width: int) -> Strip:
        table = self.replacements
        strip = Strip(
            Segment(text.translate(table) if table else text, self._style(colour))
            for text, colour in runs
            if text
        )
        return strip.adjust_cell_length(width, self._style(TEXT))

    def _crossed(self, strip: Strip, at: int) -> Strip:
        """Return a line of dots with the cursor drawn where there are no dots."""
        if strip.text[at] != " " and next(iter(strip.crop(at, at + 1))).style != self._style(GRID):
            return strip
        cross = Strip([Segment("│", self._style(CURSOR))], 1)
        return Strip.join([strip.crop(0, at), cross, strip.crop(at + 1)])

    def _style(self, colour: int) -> Style:
        if colour >= TWO:
            ground, colour = divmod(colour, TWO)
            return self._style(colour) + Style(bgcolor=self._style(ground).color)
        line, behind = divmod(colour - FIRST_LINE, 2)
        key = colour if line < 0 else (self._chart.lines[line].mark.colour, bool(behind))
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = (
                self.get_component_rich_style(f"plot--{_NAMES[key]}")
                if isinstance(key, int)
                else self._line_style(*key)
            )
        return style

    def _line_style(self, name: str, behind: bool) -> Style:
        text = self._style(TEXT)
        background = self.background_colors[1]
        colour = Color.parse(name) if name else self.get_component_styles("plot--text").color
        if self.app.native_ansi_color:
            return text + Style(color=colour.rich_color, dim=behind)
        colour = legible_colour(colour, background)
        if behind:
            opacity = self.get_component_styles("plot--behind").text_opacity
            colour = background.blend(colour, opacity)
        return text + Style.from_color(colour.rich_color)

    def _refresh_columns(self, *cells: int | None) -> None:
        if self._chart_layout is not None:
            left = self._chart_layout.left
            top = self._chart_layout.top
            rows = self._chart_layout.rows
            columns = {left + cell for cell in cells if cell is not None}
            if columns:
                self.refresh(*(Region(column, top, 1, rows) for column in columns))

    def _seen(self, chart: Chart) -> Span | None:
        """Return the whole x axis seen so far, which limits zooming out."""
        ends = [x for line in chart.lines if line.x for x in (line.x[0], line.x[-1])]
        if chart.span and self._whole and chart.x_axis == self._chart.x_axis:
            ends += self._whole
        ends = [x for x in ends if isfinite(x)]
        return (min(ends), max(ends)) if ends else None

    # --- the mouse ---

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point(self._x_under(event))

    def on_leave(self) -> None:
        self._point(None)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1 and self._x_under(event) is not None:
            self.capture_mouse()
            self._set_anchor(self._cell_under(event))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        anchor = self._anchor
        self._anchor = None
        if anchor is None:
            return
        self.release_mouse()
        self._refresh_columns(anchor)
        here = self._cell_under(event)
        layout = self._current_layout()
        if abs(here - anchor) >= _DRAGGED:
            span = layout.x_at(min(here, anchor)), layout.x_at(max(here, anchor))
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
        if span != self._chart.span:
            self.post_message(self.Zoomed(self, span))

    def _point(self, x: float | None) -> None:
        if x != self._pointed:
            self._pointed = x
            self.post_message(self.Pointed(self, x))

    def _set_anchor(self, cell: int | None) -> None:
        self._anchor = cell
        self._refresh_columns(cell)

    def _cell_under(self, event: events.MouseEvent) -> int:
        """Return the nearest cell of the plot area."""
        layout = self._current_layout()
        x = event.get_content_offset_capture(self).x - layout.left
        return max(0, min(x, layout.cells - 1))

    def _x_under(self, event: events.MouseEvent) -> float | None:
        """Return the x under the mouse; None outside of the plot area or without points."""
        layout = self._current_layout()
        offset = event.get_content_offset_capture(self)
        inside = 0 <= offset.x - layout.left < layout.cells and 0 <= offset.y < layout.height
        return layout.x_at(offset.x - layout.left) if inside and not layout.empty else None


def _bands(lines: Iterable[int], width: int) -> list[Region]:
    """Return regions of whole lines; adjacent lines share a region."""
    bands: list[Region] = []
    for y in lines:
        if bands and bands[-1].bottom == y:
            bands[-1] = bands[-1].grow((0, 0, 1, 0))
        else:
            bands.append(Region(0, y, width, 1))
    return bands
