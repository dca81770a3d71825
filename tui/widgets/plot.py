"""A plot of curves in Braille dots, with a legend that reads values off at a cursor."""

from __future__ import annotations

from collections.abc import Iterable
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

from tui.data.chart import Chart
from tui.plotting.canvas import BLANK, Run
from tui.plotting.picture import AXIS, CURSOR, FIRST_LINE, GRID, STRONGEST, TEXT, Picture
from tui.widgets.inks import apart

Span = tuple[float, float]

_WHEEL = 0.8  # of the span stays in sight at one notch
_DRAGGED = 2  # cells from which a drag is meant
_LEAST_WIDTH = {"step": 2.0, "time": 4.0, "duration": 4.0}
_LEAST_PART = 1e-6  # of the whole x axis
_NAMES = {BLANK: "text", TEXT: "text", AXIS: "axis", GRID: "grid", CURSOR: "cursor"}


class PlotPane(Widget, can_focus=True):
    """`show` gives it a chart; it says where the mouse points and which span it is to show next,
    and leaves it to the screen to do so.
    """

    HELP = (
        "Each line has its colour, its mark and its pattern of dots; ○ is the whole run. Dim dots "
        "behind a line are the extremes that it rolls up, or the raw values that it smooths. The "
        "legend reads off the last values, or those at the cursor: arrow keys or mouse. The wheel "
        "zooms, so does dragging over a part."
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

    log_y: reactive[bool] = reactive(False, repaint=False)
    smooth: reactive[int] = reactive(0, repaint=False)
    cursor: reactive[float | None] = reactive[float | None](None, repaint=False)

    class Pointed(Message):
        """The mouse is over an x, or has left (None)."""

        def __init__(self, pane: PlotPane, x: float | None) -> None:
            super().__init__()
            self.pane, self.x = pane, x

        @property
        def control(self) -> PlotPane:
            return self.pane

    class Zoomed(Message):
        """The mouse asks for another part of the x axis; None for all of it."""

        def __init__(self, pane: PlotPane, span: Span | None) -> None:
            super().__init__()
            self.pane, self.span = pane, span

        @property
        def control(self) -> PlotPane:
            return self.pane

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self._chart = Chart("", [])
        self._whole: Span | None = None
        self._picture: Picture | None = None
        self._strips: list[Strip] = []
        self._styles: dict[int | tuple[str, bool], Style] = {}
        self._inks: list[object] = []
        self._anchor: int | None = None
        self._pointed: float | None = None

    def show(self, chart: Chart) -> None:
        """Draw a chart instead of the one before; only lines that differ are painted."""
        self._whole = self._seen(chart)
        self._chart = chart
        title = f"{chart.title} ({chart.unit})" if chart.unit else chart.title
        if self._border_title is None or self._border_title.plain != title:
            self.border_title = Content(title)
        self._redraw()

    def validate_smooth(self, smooth: int) -> int:
        return max(0, min(smooth, STRONGEST))

    def watch_log_y(self) -> None:
        self._redraw()

    def watch_smooth(self) -> None:
        self._redraw()

    def watch_cursor(self, before: float | None, after: float | None) -> None:
        picture = self._picture
        if picture is None:
            return
        self._refresh_columns(picture.cell(before), picture.cell(after))
        for y, strip in self._worded_lines(picture).items():
            if strip != self._strips[y]:
                self._strips[y] = strip
                self.refresh(Region(0, y, picture.width, 1))

    # --- what the screen's actions ask for ---

    def step_cursor(self, direction: int) -> float | None:
        """The x of the next drawn column to the right (1) or left (-1) of the cursor; of the last
        one where there is no cursor, None where nothing is drawn.
        """
        picture = self._laid_out()
        drawn = picture.drawn
        at = picture.cell(self.cursor)
        if at is None or not drawn:
            return drawn[-1] if drawn else None
        cells = [picture.cell(x) or 0 for x in drawn]
        if direction > 0:
            return next((x for x, cell in zip(drawn, cells, strict=True) if cell > at), drawn[-1])
        before = [x for x, cell in zip(drawn, cells, strict=True) if cell < at]
        return before[-1] if before else drawn[0]

    def zoomed(self, factor: float, about: float | None = None) -> Span | None:
        """The span `factor` times as wide about an x, the cursor or the middle; None for all."""
        picture = self._laid_out()
        low, high, _ = picture.x
        if picture.extent is None:
            return self._chart.span
        about = self.cursor if about is None else about
        if about is None or not low <= about <= high:
            about = (low + high) / 2
        whole = self._whole or (low, high)
        least = _LEAST_WIDTH.get(self._chart.x_axis, _LEAST_PART * (whole[1] - whole[0]))
        if factor < 1 and (high - low) * factor < least:
            return self._chart.span
        span = (about - (about - low) * factor, about + (high - about) * factor)
        return None if span[0] <= whole[0] and span[1] >= whole[1] else span

    def panned(self, direction: int) -> Span | None:
        """The span half its width further to the right (1) or left (-1), as far as its middle
        stays within what was seen; None where everything is shown.
        """
        if self._chart.span is None:
            return None
        low, high = self._chart.span
        middle, half = (low + high) / 2, (high - low) / 2
        first, last = self._whole or (low, high)
        to = max(min(first, middle), min(middle + direction * half, max(last, middle)))
        return to - half, to + half

    # --- drawing ---

    def render_line(self, y: int) -> Strip:
        picture = self._laid_out()
        if y >= len(self._strips):
            return Strip.blank(self.size.width, self._style(TEXT))
        strip = self._strips[y]
        if picture.top <= y < picture.top + picture.rows:
            for cell in {picture.cell(self.cursor), self._anchor} - {None}:
                strip = self._crossed(strip, picture.left + (cell or 0))
        return strip

    def on_resize(self) -> None:
        self._redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if not self.is_mounted:
            return
        # The focus changes styles as well, but no ink: it need not wait for a new picture.
        names = sorted(self.COMPONENT_CLASSES)
        inks = [self.background_colors, *map(self.get_component_rich_style, names)]
        if inks != self._inks:
            self._inks = inks
            self._styles.clear()
            self._picture = None

    def _redraw(self) -> None:
        if not self.is_mounted or not self.size:
            self._picture = None
            return
        before, known = self._strips, self._picture is not None
        picture = self._lay_out()
        if self._border_subtitle is None or self._border_subtitle.plain != picture.note:
            self.border_subtitle = Content(picture.note)
        if not known or len(before) != len(self._strips):
            self.refresh()
            return
        changed = [y for y, strip in enumerate(self._strips) if strip != before[y]]
        if changed:
            self.refresh(*_bands(changed, picture.width))

    def _laid_out(self) -> Picture:
        picture = self._picture
        if picture is None or (picture.width, picture.height) != (self.size or (1, 1)):
            picture = self._lay_out()
        return picture

    def _lay_out(self) -> Picture:
        picture = Picture(self._chart, *self.size, self.log_y, self.smooth)
        self._picture = picture
        blank = self._strip([], picture.width)
        self._strips = [blank] * picture.height
        for y, runs in enumerate(picture.plot(), picture.top):
            self._strips[y] = self._strip(runs, picture.width)
        for y, strip in self._worded_lines(picture).items():
            self._strips[y] = strip
        return picture

    def _worded_lines(self, picture: Picture) -> dict[int, Strip]:
        """The lines whose words depend on the cursor, as long as that is in sight."""
        cursor, span = self.cursor, self._chart.span
        if cursor is not None and span and not span[0] <= cursor <= span[1]:
            cursor = None
        lines = dict(enumerate(picture.under(cursor), picture.top + picture.rows))
        if picture.top:
            lines[0] = picture.legend(cursor)
        return {y: self._strip(runs, picture.width) for y, runs in lines.items()}

    def _strip(self, runs: Iterable[Run], width: int) -> Strip:
        strip = Strip(Segment(text, self._style(ink)) for text, ink in runs if text)
        return strip.adjust_cell_length(width, self._style(TEXT))

    def _crossed(self, strip: Strip, at: int) -> Strip:
        """A line of dots with the cursor where it has none."""
        if strip.text[at] != " " and next(iter(strip.crop(at, at + 1))).style != self._style(GRID):
            return strip
        cross = Strip([Segment("│", self._style(CURSOR))], 1)
        return Strip.join([strip.crop(0, at), cross, strip.crop(at + 1)])

    def _style(self, ink: int) -> Style:
        line, behind = divmod(ink - FIRST_LINE, 2)
        key = ink if line < 0 else (self._chart.lines[line].mark.colour, bool(behind))
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = (
                self.get_component_rich_style(f"plot--{_NAMES[key]}")
                if isinstance(key, int)
                else self._line_style(*key)
            )
        return style

    def _line_style(self, colour: str, behind: bool) -> Style:
        text, paper = self._style(TEXT), self.background_colors[1]
        ink = self.get_component_styles("plot--text").color if not colour else Color.parse(colour)
        part = self.get_component_styles("plot--behind").text_opacity
        if self.app.native_ansi_color:
            return text + Style(color=ink.rich_color, dim=behind)
        ink = apart(ink, paper)
        return text + Style.from_color((paper.blend(ink, part) if behind else ink).rich_color)

    def _refresh_columns(self, *cells: int | None) -> None:
        if self._picture is not None:
            left, top, rows = self._picture.left, self._picture.top, self._picture.rows
            columns = {left + cell for cell in cells if cell is not None}
            if columns:
                self.refresh(*(Region(column, top, 1, rows) for column in columns))

    def _seen(self, chart: Chart) -> Span | None:
        """All that was ever seen of the x axis: how far one can zoom out."""
        ends = [x for line in chart.lines if line.x for x in (line.x[0], line.x[-1])]
        if chart.span and self._whole and chart.x_axis == self._chart.x_axis:
            ends += self._whole
        ends = [x for x in ends if x - x == 0]
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
        anchor, self._anchor = self._anchor, None
        if anchor is None:
            return
        self.release_mouse()
        self._refresh_columns(anchor)
        here, picture = self._cell_under(event), self._laid_out()
        if abs(here - anchor) >= _DRAGGED:
            span = picture.x_at(min(here, anchor)), picture.x_at(max(here, anchor))
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
        """The nearest cell of the dots."""
        picture = self._laid_out()
        x = event.get_content_offset_capture(self).x - picture.left
        return max(0, min(x, picture.cells - 1))

    def _x_under(self, event: events.MouseEvent) -> float | None:
        """The x that the mouse points at; None beside the dots or where there are none."""
        picture = self._laid_out()
        offset = event.get_content_offset_capture(self)
        inside = 0 <= offset.x - picture.left < picture.cells and 0 <= offset.y < picture.height
        return picture.x_at(offset.x - picture.left) if inside and not picture.empty else None


def _bands(lines: Iterable[int], width: int) -> list[Region]:
    """Regions of whole lines, neighbours in one."""
    bands: list[Region] = []
    for y in lines:
        if bands and bands[-1].bottom == y:
            bands[-1] = bands[-1].grow((0, 0, 1, 0))
        else:
            bands.append(Region(0, y, width, 1))
    return bands
