"""Lay out a chart in cells: legend, curves and axes as lines of coloured text.

● rank 0 0.0712  ■ rank 1 0.0698      legend
1.0 ┤⠢⢄⡀                              lines of dots, labels of y at their left
    │  ⠈⠉⠒⠒●
    └────┴────┴────                   rule, where there is room
        100  200                      labels of x
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import floor, isfinite, nan
from operator import le
from typing import NamedTuple

from rich.cells import cell_len

from distrain.runners import formatting
from distrain.tui.data.chart import Chart, ChartLine
from distrain.tui.plotting.canvas import Canvas, ColouredText, ColumnSpan, column_spans, joined_bars
from distrain.tui.plotting.scale import (
    LARGEST,
    AxisLabel,
    Scale,
    Tick,
    axis_labels,
    fit_scale,
    place_label,
    value_ticks,
)
from distrain.tui.plotting.smoothing import smooth_curve

GRID, AXIS, TEXT, CURSOR, FIRST_LINE = range(1, 6)
STRONGEST = 3
_REACH = (0.0, 0.01, 0.03, 0.1)  # of smoothing, as a fraction of the width
_MOST_TICKS = 6
_NO_WIDTH = 1e-12  # relative width of an axis below which it is rounding error
_NARROW = 20  # cells below which y labels are left out
_RULED = 9  # lines from which there is a rule above the x labels
_SPARSE = 6  # cells per point from which each point has a mark


def colour_of(line: int, behind: bool = False) -> int:
    """Return the colour number of a chart's line, or of its dim background."""
    number = FIRST_LINE + 2 * line
    return number + 1 if behind else number


class _DrawnLine(NamedTuple):
    """A line as it is drawn: `y` may be smoothed; `low` and `high` bound its dim background."""

    number: int
    line: ChartLine
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None
    high: Sequence[float] | None

    @property
    def has_text_colour(self) -> bool:
        """Return whether it is the line of the whole run, which has the text's colour."""
        return not self.line.mark.colour


class ChartLayout:
    """A chart at one size. Lines count from the top: the legend, `rows` of dots, the x axis."""

    def __init__(
        self, chart: Chart, width: int, height: int, log_y: bool = False, smooth: int = 0
    ) -> None:
        self.chart = chart
        self.width = max(width, 1)
        self.height = max(height, 1)
        self._lines = [_sorted_within(line, chart.span) for line in chart.lines]
        self.extent = _extent(self._lines)
        low, high = chart.span or self.extent or (0.0, 1.0)
        if high - low <= max(_NO_WIDTH * max(abs(low), abs(high)), 1 / LARGEST):
            spread = max(0.5, abs(low) * 1e-6)
            low, high = low - spread, high + spread
        self.x = Scale(low, high)
        self._log = log_y
        self._smooth = smooth
        self._curves = [self._curve(at, line) for at, line in enumerate(self._lines)]
        bounds = [found for curve in self._curves for found in _bounds(curve, log_y)]
        self.empty = not bounds
        self.top = 1 if self.height > 1 else 0
        self._ruled = self.height >= _RULED
        below = 1 if self.height > 2 else 0
        if self._ruled:
            below += 1
        self.rows = max(1, self.height - self.top - below)
        self.y = fit_scale(
            min((low for low, _ in bounds), default=1.0),
            max((high for _, high in bounds), default=1.0),
            max(2, self.rows // 2),
            log_y,
        )
        self.ticks = {} if self.empty else self._ticks()
        widest = max((len(tick.label) for tick in self.ticks.values()), default=0)
        fits = self.width >= _NARROW and widest <= self.width // 3
        self.left = 0 if self.empty or self.width < 3 else widest + 1 if fits else 1
        self.cells = self.width - self.left

    def _curve(self, index: int, line: ChartLine) -> _DrawnLine:
        if self._smooth:
            reach = _REACH[self._smooth] * (self.x.high - self.x.low)
            return _DrawnLine(
                index, line, line.x, smooth_curve(line.x, line.y, reach), line.y, line.y
            )
        if line.low == line.y:  # nothing was rolled up
            return _DrawnLine(index, line, line.x, line.y, None, None)
        return _DrawnLine(index, line, line.x, line.y, line.low, line.high)

    def _ticks(self) -> dict[int, Tick]:
        """Return the ticks by line of cells, none next to another."""
        most = max(1, min(_MOST_TICKS, self.rows // 2))
        for found in value_ticks(self.y, most):
            places = self.y.flipped.places([tick.at for tick in found], 4 * self.rows)
            lines = [round(place) // 4 for place in places]
            if all(above - below > 1 for below, above in zip(lines[1:], lines, strict=False)):
                return dict(zip(lines, found, strict=True))
        return {}

    # --- positions ---

    def cell(self, x: float | None) -> int | None:
        """Return the cell that shows an x; None outside of the chart."""
        if x is None or not isfinite(x) or self.empty:
            return None
        place = self.x.places([x], 2 * self.cells)[0]
        return floor(place + 0.5) // 2 if -0.5 <= place < 2 * self.cells - 0.5 else None

    def x_at(self, cell: int) -> float:
        """Return the x at the middle of a cell."""
        dots = max(1, 2 * self.cells - 1)
        return self.x.low + (2 * cell + 0.5) / dots * (self.x.high - self.x.low)

    @cached_property
    def drawn(self) -> list[float]:
        """Return one x for each cell that has a point of any line, in order."""
        points: dict[int | None, float] = {}
        for line in self._lines:
            for x, y in zip(line.x, line.y, strict=True):
                if isfinite(y):
                    points.setdefault(self.cell(x), x)
        points.pop(None, None)
        return sorted(points.values())

    # --- lines of text ---

    def legend(self, cursor: float | None = None) -> list[ColouredText]:
        """Return mark, name and value of each line, that of the whole run first.

        The value is the last one or that at the cursor. The legend ends with the number of lines
        that did not fit.
        """
        runs: list[ColouredText] = []
        room = self.width
        order = (
            [] if self.empty else sorted(self._curves, key=lambda curve: not curve.has_text_colour)
        )
        for rest, (at, line, *_) in zip(range(len(order), 0, -1), order, strict=True):
            value = self.chart.format_value(self.value(line, cursor))
            gap = "  " if runs else ""
            needs = cell_len(f"{gap}{line.mark.shape} {line.name} {value}")
            if needs + (len(f"  +{rest - 1} more") if rest > 1 else 0) > room:
                more = f"{gap}+{rest} more" if runs else formatting.plural(rest, "line")
                return [*runs, (more[:room], AXIS)]
            runs += [
                (gap + line.mark.shape, colour_of(at)),
                (f" {line.name} ", AXIS),
                (value, TEXT),
            ]
            room -= needs
        return runs

    def value(self, line: ChartLine, cursor: float | None) -> float:
        """Return the last visible value of a line, or the nearest to the cursor; NaN for none."""
        if not line.x:
            return nan
        if cursor is None:
            seen = [y for x, y in zip(line.x, line.y, strict=True) if x <= self.x.high]
            return seen[-1] if seen else nan
        right = bisect_left(line.x, cursor)
        near = min(
            range(max(0, right - 1), min(right + 1, len(line.x))),
            key=lambda at: abs(line.x[at] - cursor),
        )
        slack = (self.x.high - self.x.low) / self.cells
        inside = line.x[0] - slack <= cursor <= line.x[-1] + slack
        return line.y[near] if inside else nan

    def plot(self) -> list[list[ColouredText]]:
        """Return `rows` lines with y labels and dots, or the text of an empty chart."""
        if self.empty:
            blank: list[list[ColouredText]] = [[] for _ in range(self.rows)]
            blank[(self.rows - 1) // 2] = [(self._hint.center(self.width)[: self.width], AXIS)]
            return blank
        dots = self._dots()
        lines = []
        for row, line in enumerate(dots):
            tick = self.ticks.get(row)
            text = tick.label if tick and self.left > len(tick.label) else ""
            axis = "" if not self.left else "┤" if tick else "│"
            lines.append([(text.rjust(self.left - len(axis)) + axis, AXIS), *line])
        return lines

    def axis_lines(self, cursor: float | None = None) -> list[list[ColouredText]]:
        """Return the lines below the dots: a rule and x labels. The label of the cursor replaces
        those that it would touch.
        """
        if self.height < 3 or self.empty:
            return []
        labels = axis_labels(self.chart.x_axis, self.x, self.cells)
        lines = []
        if self._ruled:
            rule = ["─"] * self.cells
            for found in labels:
                rule[found.about] = "┬"
            lines.append([("└".rjust(self.left)[: self.left] + "".join(rule), AXIS)])
        if self.cell(cursor) is None or cursor is None:
            return [*lines, self._axis_line(labels)]
        here = place_label(self.x, Tick(cursor, self.format_x(cursor)), self.cells)
        kept = [at for at in labels if _apart(at, here)] if len(here.text) <= self.cells else labels
        return [*lines, self._axis_line(kept, here if kept is not labels else None)]

    def _axis_line(
        self, labels: Iterable[AxisLabel], here: AxisLabel | None = None
    ) -> list[ColouredText]:
        runs: list[ColouredText] = []
        end = -self.left
        for at in sorted([*labels, *([here] if here else [])]):
            runs.append((" " * (at.start - end), AXIS))
            runs.append((at.text, CURSOR if at is here else AXIS))
            end = at.start + len(at.text)
        return runs

    def format_x(self, x: float) -> str:
        if self.chart.x_axis == "time":
            return formatting.time_of_day(x)
        if self.chart.x_axis == "duration":
            return formatting.duration(x)
        return formatting.count(x) if self.chart.x_axis == "step" else formatting.figure(x)

    @property
    def note(self) -> str:
        """Return the smoothing, the kind of y axis, and the unit of x."""
        parts = [f"smooth {self._smooth}"] if self._smooth else []
        if self._log:
            hidden = any(low <= 0 for curve in self._curves for low, _ in _bounds(curve, False))
            parts.append("log y, without values ≤ 0" if hidden else "log y")
        return " · ".join([*parts, self.chart.x_axis])

    @property
    def _hint(self) -> str:
        """Return the text of an empty chart."""
        hidden = self._log and any(_bounds(curve, False) for curve in self._curves)
        return "no values above 0 for a log axis" if hidden else self.chart.empty_text

    # --- dots ---

    def _dots(self) -> list[list[ColouredText]]:
        canvas = Canvas(self.cells, self.rows)
        front = Canvas(self.cells, self.rows)
        for place in self.y.flipped.places([t.at for t in self.ticks.values()], canvas.rows):
            canvas.rule(round(place), GRID)
        scale = self.y.flipped
        shown = []
        columns: list[float] = []
        x: Sequence[float] | None = None
        for curve in sorted(self._curves, key=lambda curve: curve.has_text_colour):
            if x is None or curve.x != x:
                x = curve.x
                columns = self.x.places(curve.x, canvas.columns)
            rows = scale.places(curve.y, canvas.rows)
            if curve.low is not None and curve.high is not None:
                low, high = (scale.places(y, canvas.rows) for y in (curve.low, curve.high))
                raw = low if curve.low is curve.high else rows
                canvas.curve(
                    column_spans(columns, raw, high, low), colour_of(curve.number, behind=True)
                )
            found = column_spans(columns, rows)
            front.curve(
                found, colour_of(curve.number), curve.line.mark.pattern, thick=curve.has_text_colour
            )
            shown.append((curve, found))
        canvas.overlay(front)
        return canvas.lines(self._marks(shown))

    def _marks(
        self, shown: Iterable[tuple[_DrawnLine, list[ColumnSpan]]]
    ) -> Iterator[tuple[int, int, str, int]]:
        """Yield the mark of each line at its last free point; lines with few points have a mark at
        each.
        """
        taken: set[tuple[int, int]] = set()
        for curve, found in reversed(list(shown)):
            points = [(int(column), last) for column, *_, last, _ in reversed(found)]
            most = len(points) if len(points) * _SPARSE <= self.cells else 1
            placed = list(islice(self._free(points, taken), most))
            if not placed:
                bars = [(column, top) for column, top, _ in joined_bars(found, 2 * self.cells)]
                placed = list(islice(self._free(reversed(bars), taken), 1))
            for column, row in placed:
                taken.update((column + aside, row) for aside in (-1, 0, 1))
                yield column, row, curve.line.mark.shape, colour_of(curve.number)

    def _free(
        self, points: Iterable[tuple[int, float]], taken: set[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Yield the cells without a mark in or next to them."""
        for column, row in points:
            cell = column // 2, floor(row + 0.5) // 4
            if 0 <= cell[0] < self.cells and 0 <= cell[1] < self.rows and cell not in taken:
                yield cell


def _apart(one: AxisLabel, other: AxisLabel) -> bool:
    return one.start + len(one.text) < other.start or other.start + len(other.text) < one.start


def _sorted_within(line: ChartLine, span: tuple[float, float] | None) -> ChartLine:
    """Return the line sorted by x, without points that have no x, cut to the span and one more
    point on either side.
    """
    x = line.x
    if not (all(map(le, x, islice(x, 1, None))) and all(map(_is_place, (*x[:1], *x[-1:])))):
        order = sorted((at for at in range(len(x)) if _is_place(x[at])), key=x.__getitem__)
        line = _select(line, order)
        x = line.x
    if span is None or not x or (span[0] <= x[0] and x[-1] <= span[1]):
        return line
    first = bisect_left(x, span[0])
    last = bisect_left(x, span[1])
    return _select(line, range(max(0, first - 1), min(len(x), last + 1)))


def _is_place(x: float) -> bool:
    return abs(x) < LARGEST


def _select(line: ChartLine, which: Sequence[int]) -> ChartLine:
    x, y, low, high = (
        None if values is None else [values[at] for at in which]
        for values in (line.x, line.y, line.low, line.high)
    )
    return line._replace(x=x or [], y=y or [], low=low, high=high)


def _extent(lines: Iterable[ChartLine]) -> tuple[float, float] | None:
    ends = [(line.x[0], line.x[-1]) for line in lines if line.x]
    return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else None


def _bounds(curve: _DrawnLine, log: bool) -> list[tuple[float, float]]:
    """Return the least and greatest values of each part of a curve that has values."""
    found = []
    for values in (curve.y, curve.low, curve.high):
        if values:
            if not isfinite(sum(values)):
                values = [value for value in values if isfinite(value)]
            if log and values and min(values) <= 0:
                values = [value for value in values if value > 0]
            if values:
                found.append((min(values), max(values)))
    return found
