"""How a chart is painted: lines of Braille dots with a legend that shows values at a cursor."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.content import Content
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from distrain.tui.data.chart import Chart
from distrain.tui.keymap import insert_keys
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

_NAMES = {BLANK: "text", TEXT: "text", AXIS: "axis", GRID: "grid", CURSOR: "cursor"}


class PaintedChart(Widget):
    """Shows a chart. What has not changed is not painted again."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"plot--{name}" for name in _NAMES.values()),
        "plot--behind",
    }
    DEFAULT_CSS = """
    PaintedChart {
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

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self._chart = Chart("", [])
        self.whole: Span | None = None  # the x axis seen so far
        self._chart_layout: ChartLayout | None = None
        self._strips: list[Strip] = []
        self._styles: dict[int | tuple[str, bool], Style] = {}
        self._colours: list[object] = []
        self.drag_start: int | None = None  # the cell where a drag of the mouse began
        self.replacements: dict[int, str] = {}  # characters that the terminal lacks

    @property
    def chart(self) -> Chart:
        """Return the chart that is drawn."""
        return self._chart

    def show(self, chart: Chart) -> None:
        """Draw a chart; only lines that differ from the last one are repainted."""
        if chart is self._chart and self._chart_layout is not None:
            return
        self.whole = self._seen(chart)
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
        self.refresh_columns(layout.cell(before), layout.cell(after))
        self._show_note(layout)
        for y, strip in self._text_lines(layout).items():
            if strip != self._strips[y]:
                self._strips[y] = strip
                self.refresh(Region(0, y, layout.width, 1))

    # --- drawing ---

    def render_line(self, y: int) -> Strip:
        layout = self.current_layout()
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self._style(TEXT))
        strip = self._strips[y]
        if layout.top <= y < layout.top + layout.rows:
            for cell in {layout.cell(self.cursor), self.drag_start} - {None}:
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

    def current_layout(self) -> ChartLayout:
        """Return the layout of the chart in the current size."""
        layout = self._chart_layout
        width, height = self.size
        if layout is None or (layout.width, layout.height) != (max(width, 1), max(height, 1)):
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

    def refresh_columns(self, *cells: int | None) -> None:
        """Paint some columns of the plot area again."""
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
        if chart.span and self.whole and chart.x_axis == self._chart.x_axis:
            ends += self.whole
        ends = [x for x in ends if isfinite(x)]
        return (min(ends), max(ends)) if ends else None


def _bands(lines: Iterable[int], width: int) -> list[Region]:
    """Return regions of whole lines; adjacent lines share a region."""
    bands: list[Region] = []
    for y in lines:
        if bands and bands[-1].bottom == y:
            bands[-1] = bands[-1].grow((0, 0, 1, 0))
        else:
            bands.append(Region(0, y, width, 1))
    return bands
