"""The lines of a chart, prepared for drawing, and the range of their values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from math import isfinite
from operator import le
from typing import NamedTuple

from distrain.tui.data.chart import ChartLine
from distrain.tui.plotting.scale import LARGEST

USUAL = 0.01  # of the values, at each end of the y axis, may be outliers
LEAST_POINTS = 20  # to tell what is usual
FAR = 2.0  # from the usual values, in terms of their range, outliers are cut off


class PlotLook(NamedTuple):
    """How a person wants to see a chart.

    `smooth` is an index of WEIGHTS. `cut` leaves outliers out of the y axis, `y_span` is the part
    of it to show (None for all), and `hidden` are the names of lines that are not drawn.
    """

    log_y: bool = False
    smooth: int = 0
    cut: bool = True
    y_span: tuple[float, float] | None = None
    hidden: frozenset[str] = frozenset()

    def shown(self, lines: Sequence[ChartLine]) -> list[ChartLine]:
        """Return the lines to draw; those for solo only where no other is left."""
        left = [line for line in lines if line.name not in self.hidden]
        return left if len(left) == 1 else [line for line in left if not line.is_for_solo]


class DrawnLine(NamedTuple):
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


def y_range(
    values: list[float], curves: Iterable[DrawnLine], look: PlotLook, stacked: bool
) -> tuple[float, float, bool]:
    """Return the least and the greatest value to show, and whether that cuts off outliers.

    `values` are those of the lines. A stacked chart begins at 0. A log axis ignores what is behind
    the lines, because extremes close to 0 would take most of it.
    """
    if not values:
        return 1.0, 1.0, False
    low, high = min(values), max(values)
    if stacked:
        return 0.0, max(high, 1 / LARGEST), False
    if look.log_y:
        return low, high, False
    behind = [pair for curve in curves for pair in bounds_of(curve)]
    least = min((low for low, _ in behind), default=low)
    most = max((high for _, high in behind), default=high)
    if not look.cut or len(values) < LEAST_POINTS:
        return least, most, False
    values = sorted(values)
    rank = int(USUAL * len(values)) + 1
    reach = FAR * (values[-1 - rank] - values[rank])
    if not reach:
        return least, most, False
    lowest, highest = values[rank] - reach, values[-1 - rank] + reach
    is_cut = low < lowest or high > highest
    return max(least, lowest), min(most, highest), is_cut


def sorted_within(line: ChartLine, span: tuple[float, float] | None) -> ChartLine:
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


def extent_of(lines: Iterable[ChartLine]) -> tuple[float, float] | None:
    ends = [(line.x[0], line.x[-1]) for line in lines if line.x]
    return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else None


def bounds_of(curve: DrawnLine, log: bool = False) -> list[tuple[float, float]]:
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
