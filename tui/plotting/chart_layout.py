"""Lay out a chart in cells: legend, curves and axes as lines of coloured text.

● rank 0 0.0712  ■ rank 1 0.0698      legend, in several lines if needed
1.0 ┤⠢⢄⡀                              lines of dots, labels of y at their left,
    │  ⠈⠉⠒⠒●                          marks in a column at their right
    └────┴────┴────                   rule, where there is room
        100  200                      labels of x
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import floor, isfinite, nan

from rich.cells import cell_len

from distrain.runners import formatting
from distrain.tui.data.chart import Chart, ChartLine
from distrain.tui.plotting import area
from distrain.tui.plotting.canvas import Canvas, ColouredText, ColumnSpan, column_spans
from distrain.tui.plotting.drawn_line import (
    DrawnLine,
    PlotLook,
    bounds_of,
    extent_of,
    sorted_within,
    y_range,
)
from distrain.tui.plotting.edge import spread_rows
from distrain.tui.plotting.legend import Entry, Legend, arrange, describe_hidden
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
from distrain.tui.plotting.smoothing import WEIGHTS, moving_average

GRID, AXIS, TEXT, CURSOR, FIRST_LINE = range(1, 6)
STRONGEST = len(WEIGHTS) - 1
CUT = "▴", "▾"  # mark values above and below the y axis
_MOST_TICKS = 6
_NO_WIDTH = 1e-12  # relative width of an axis below which it is rounding error
_NARROW = 20  # cells below which y labels are left out
_RULED = 9  # lines from which there is a rule above the x labels
_SPARSE = 6  # cells per point from which each point has a mark
_HIDDEN = "hidden"
_LEGEND_PART = 3  # of the height, at most, is one in so many
_NAMES_PART = 2  # the same for names alone, without which a chart tells nothing
_SAMPLED_VALUES = 16  # of a line, to find out how long they are


def colour_of(line: int, behind: bool = False) -> int:
    """Return the colour number of a chart's line, or of its dim background."""
    number = FIRST_LINE + 2 * line
    return number + 1 if behind else number


class ChartLayout:
    """A chart at one size. Lines count from the top: the legend, `rows` of dots, the x axis."""

    def __init__(
        self,
        chart: Chart,
        width: int,
        height: int,
        look: PlotLook = PlotLook(),  # noqa: B008
    ) -> None:
        self.chart = chart
        self.look = look
        self.width = max(width, 1)
        self.height = max(height, 1)
        self._lines = [sorted_within(line, chart.span) for line in chart.lines]
        self.extent = extent_of(self._lines)
        low, high = chart.span or self.extent or (0.0, 1.0)
        if high - low <= max(_NO_WIDTH * max(abs(low), abs(high)), 1 / LARGEST):
            spread = max(0.5, abs(low) * 1e-6)
            low, high = low - spread, high + spread
        self.x = Scale(low, high)
        self._shown = look.shown(self._lines)
        self._curves = [
            self._curve(at, line) for at, line in enumerate(self._lines) if self._is_shown(line)
        ]
        self._is_log = look.log_y and not chart.stacked
        values = [y for curve in self._stacked() for y in curve if isfinite(y)]
        if self._is_log:
            values = [y for y in values if y > 0]
        self.empty = not values
        low, high, self.cut = y_range(values, self._curves, look, chart.stacked)
        self._legend = self._arrange_legend()
        self.top = min(max(1, len(self._legend.lines)), self.height - 1)
        self._ruled = self.height >= _RULED
        below = 1 if self.height > 2 else 0
        if self._ruled:
            below += 1
        self.rows = max(1, self.height - self.top - below)
        if look.y_span:
            self.y = Scale(*look.y_span, self._is_log)
        else:
            self.y = fit_scale(low, high, max(2, self.rows // 2), self._is_log)
        self.ticks = {} if self.empty else self._ticks()
        widest = max((len(tick.label) for tick in self.ticks.values()), default=0)
        fits = self.width >= _NARROW and widest <= self.width // 3
        self.left = 0 if self.empty or self.width < 3 else widest + 1 if fits else 1
        self.right = 1 if self.width >= _NARROW else 0
        self.cells = self.width - self.left - self.right

    def _is_shown(self, line: ChartLine) -> bool:
        return any(line is other for other in self._shown)

    def _stacked(self) -> list[Sequence[float]]:
        """Return the values of each curve; of a stacked chart those on top of the others."""
        if not self.chart.stacked:
            return [curve.y for curve in self._curves]
        columns = zip(*(curve.y for curve in self._curves), strict=False)
        return [[*column] for column in zip(*map(accumulate, columns), strict=True)]

    def _curve(self, index: int, line: ChartLine) -> DrawnLine:
        if weight := WEIGHTS[self.look.smooth]:
            raw = None if self.chart.stacked else line.y
            return DrawnLine(index, line, line.x, moving_average(line.y, weight), raw, raw)
        if line.low == line.y or self.chart.stacked:  # nothing was rolled up
            return DrawnLine(index, line, line.x, line.y, None, None)
        return DrawnLine(index, line, line.x, line.y, line.low, line.high)

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

    def _arrange_legend(self) -> Legend:
        """Return the legend, the line of the whole run first."""
        order = sorted(enumerate(self._lines), key=lambda pair: bool(pair[1].mark.colour))
        entries = [
            Entry(at, line.mark.shape, line.name, self._value_room(line))
            for at, line in ([] if self.empty else order)
            if not line.is_for_solo or self._is_shown(line)
        ]
        most = max(1, self.height // _LEGEND_PART)
        return arrange(entries, self.width, most, self.height // _NAMES_PART)

    def _value_room(self, line: ChartLine) -> int:
        """Return how many cells the values of a line may need in the legend."""
        if line.name in self.look.hidden:
            return len(_HIDDEN)
        known = [y for y in line.y if isfinite(y)] or [nan]
        # One between the extremes may have more digits than both, as the smallest and most others.
        some = known[:: len(known) // _SAMPLED_VALUES + 1]
        values = (min(known), max(known), min(known, key=abs), known[-1], *some)
        share = len(" (100 %)") if self.chart.stacked else 0
        return max(map(len, map(self.chart.format_value, values))) + share

    def legend(self, cursor: float | None = None) -> list[list[ColouredText]]:
        """Return lines with the mark, name and value of each line: the last one, or at the cursor.

        The legend ends with the number of lines that did not fit.
        """
        lines: list[list[ColouredText]] = [[] for _ in range(self.top)]
        for runs, entries in zip(lines, self._legend.lines, strict=False):
            if runs is lines[0] and self._legend.prefix:
                runs.append((self._legend.prefix, AXIS))
            for entry, size in entries:
                shape, name = f"{entry.shape}", f" {entry.name}"
                value = f" {self._legend_value(entry, cursor)}" if self._legend.has_values else ""
                room = size - cell_len(shape + name)
                is_last = entry is entries[-1][0]
                runs += [
                    (shape, colour_of(entry.number)),
                    (name, AXIS),
                    (value if is_last else value.ljust(room), TEXT),
                ]
        if rest := describe_hidden(self._legend, self.width):
            if not lines:
                return []
            lines[-1].append((f"  {rest}" if lines[-1] else rest, AXIS))
        return lines

    def _legend_value(self, entry: Entry, cursor: float | None) -> str:
        line = self._lines[entry.number]
        if line.name in self.look.hidden:
            return _HIDDEN
        value = self.value(line, cursor)
        text = self.chart.format_value(value)
        if self.chart.stacked and isfinite(value):
            parts = (self.value(curve.line, cursor) for curve in self._curves)
            whole = sum(filter(isfinite, parts))
            text += f" ({formatting.percent(value / whole if whole else 0.0)})"
        return text[: entry.room]

    def value(self, line: ChartLine, cursor: float | None) -> float:
        """Return the last visible value of a line, or the nearest to the cursor; NaN for none."""
        if not line.x:
            return nan
        if cursor is None:
            seen = bisect_right(line.x, self.x.high)
            return line.y[seen - 1] if seen else nan
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
        cells = self._area() if self.chart.stacked else self._dots()
        ends = self._end_marks() if self.right else {}
        lines = []
        for row, line in enumerate(cells):
            tick = self.ticks.get(row)
            text = tick.label if tick and self.left > len(tick.label) else ""
            axis = "" if not self.left else "┤" if tick else "│"
            lines.append([(text.rjust(self.left - len(axis)) + axis, AXIS), *line])
            if row in ends:
                lines[-1].append(ends[row])
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

    def notes(self, at_cursor: bool = False) -> list[str]:
        """Return what a person has changed, and at which x the values of the legend are: in whole,
        and shorter for a narrow border.
        """
        long, short = self._changes
        where = "values at the cursor" if at_cursor else self._last_position()
        position = where.removeprefix("values ")
        return [
            " · ".join(filter(None, [*parts, place]))
            for parts, place in ((long, where), (short, position), (short, ""))
            if parts or place
        ]

    @property
    def _changes(self) -> tuple[list[str], list[str]]:
        """Return what a person has changed, in long and in short words."""
        look = self.look
        found = []
        if look.smooth:
            found.append((f"EMA {WEIGHTS[look.smooth]:g}",) * 2)
        if self._is_log:
            hidden = any(low <= 0 for curve in self._curves for low, _ in bounds_of(curve, False))
            found.append(("log y, without values ≤ 0", "log y > 0") if hidden else ("log y",) * 2)
        if self.cut and not look.y_span:
            found.append(("outliers cut off", "outliers cut"))
        if look.hidden & {line.name for line in self._lines}:
            found.append(("some lines hidden", "lines hidden"))
        if self.chart.span or look.y_span:
            found.append(("zoomed, {plot.whole} shows all", "zoomed: {plot.whole}"))
        return [long for long, _ in found], [short for _, short in found]

    def _last_position(self) -> str:
        axis = self.chart.x_axis
        seen = [line.x[: bisect_right(line.x, self.x.high)] for line in self._shown]
        ends = [x[-1] for x in seen if x]
        if self.empty or not ends:
            return axis
        if (self.cell(max(ends)) or 0) - (self.cell(min(ends)) or 0) > 1:  # each has its own end
            return f"last values · {axis}"
        name = f"{axis} " if axis in ("step", "epoch") else ""
        return f"values at {name}{self.format_x(max(ends))}"

    @property
    def _hint(self) -> str:
        """Return the text of an empty chart."""
        if self._lines and not self._curves:
            return "all lines are hidden"
        hidden = self._is_log and any(bounds_of(curve, False) for curve in self._curves)
        return "no values above 0 for a log axis" if hidden else self.chart.empty_text

    # --- dots ---

    def _dots(self) -> list[list[ColouredText]]:
        canvas = Canvas(self.cells, self.rows, takes_turns=False)
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
        return canvas.lines([*self._point_marks(shown), *self._cut_marks(shown)])

    def _area(self) -> list[list[ColouredText]]:
        """Return lines of cells with the curves on top of each other."""
        parts = []
        for curve in self._curves:
            places = self.x.places(curve.x, 2 * self.cells)
            means = area.means_per_cell(places, curve.y, self.cells)
            parts.append((colour_of(curve.number), means))
        return area.draw_area(parts, self.rows, self.y.high)

    def _cut_marks(
        self, shown: Iterable[tuple[DrawnLine, list[ColumnSpan]]]
    ) -> Iterator[tuple[int, int, str, int]]:
        """Yield marks at the edge for points beyond it."""
        last = 4 * self.rows - 1
        for curve, found in shown:
            for column, _, top, bottom, *_ in found:
                if not 0 <= (cell := int(column) // 2) < self.cells:
                    continue
                if top < -0.5:
                    yield cell, 0, CUT[0], colour_of(curve.number)
                if bottom >= last + 0.5:
                    yield cell, self.rows - 1, CUT[1], colour_of(curve.number)

    def _point_marks(
        self, shown: Iterable[tuple[DrawnLine, list[ColumnSpan]]]
    ) -> Iterator[tuple[int, int, str, int]]:
        """Yield marks at each point of lines with few points, and at the end of lines that end
        before the others.
        """
        taken: set[tuple[int, int]] = set()
        for curve, found in reversed(list(shown)):
            points = [(int(column), last) for column, *_, last, _ in reversed(found)]
            if len(points) * _SPARSE > self.cells:
                points = points[:1]
            if self.right and self._reaches_edge(curve):  # there its mark is in the last column
                points = points[1:]
            for column, row in points:
                cell = column // 2, floor(row + 0.5) // 4
                inside = 0 <= cell[0] < self.cells and 0 <= cell[1] < self.rows
                if inside and cell not in taken:
                    taken.update((cell[0] + aside, cell[1]) for aside in (-1, 0, 1))
                    yield *cell, curve.line.mark.shape, colour_of(curve.number)

    def _reaches_edge(self, curve: DrawnLine) -> bool:
        """Return whether a curve ends where the chart does."""
        known = [x for x, y in zip(curve.x, curve.y, strict=True) if isfinite(y)]
        return bool(known) and (self.cell(min(known[-1], self.x.high)) or 0) >= self.cells - 2

    def _end_marks(self) -> dict[int, ColouredText]:
        """Return the marks at the right edge by row: each next to the end of its line.

        Where several lines end in one row, their marks are in adjacent rows, in the same order.
        """
        ends = []
        for curve, top in zip(self._curves, self._stacked(), strict=True):
            if top and self._reaches_edge(curve):
                seen = zip(curve.x, top, strict=False)
                known = [y for x, y in seen if isfinite(y) and x <= self.x.high]
                value = known[-1] if known else nan
                if self.chart.stacked:  # the middle of its part
                    own = [y for y in curve.y if isfinite(y)][-1]
                    value -= own / 2
                (place,) = self.y.flipped.places([value], 4 * self.rows)
                if isfinite(place):
                    row = max(0, min(floor(place + 0.5) // 4, self.rows - 1))
                    ends.append((place, row, curve))
        ends.sort(key=lambda end: end[:2])
        rows = spread_rows([row for _, row, _ in ends], self.rows)
        return {
            row: (curve.line.mark.shape, colour_of(curve.number))
            for row, (_, _, curve) in zip(rows, ends, strict=False)
        }


def _apart(one: AxisLabel, other: AxisLabel) -> bool:
    return one.start + len(one.text) < other.start or other.start + len(other.text) < one.start
