"""The curve of one name that scripts have logged, over all ranks, and the names of several runs."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from math import fsum, isnan, nan

from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.series import LOGGED

LOGGED_COLUMNS = ("value", "total", "finite", "low", "high")
_COLUMNS = (*LOGGED.axes, *LOGGED_COLUMNS)


def order_names(runs: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of several runs: those that most runs have first, as they were logged."""
    count = Counter(name for names in runs for name in names)
    return sorted(count, key=lambda name: -count[name])


def over_ranks(curves: Iterable[Curve]) -> Curve:
    """Return one curve with the mean of all ranks' values, and their minimum and maximum.

    Needs LOGGED_COLUMNS. Ranks may log different numbers of values, at different steps: a rank's
    point counts where it ends. The result has at most as many points as the longest curve.
    """
    curves = [curve for curve in curves if len(curve)]
    if len(curves) < 2:
        return curves[0] if curves else Curve({name: array("d") for name in _COLUMNS})
    longest = max(map(len, curves))
    steps = sorted({step for curve in curves for step in curve["step"]})
    stride = -(-len(steps) // longest)
    edges = steps[::-stride][::-1]  # the last step is always among them
    points: list[list[tuple[float, ...]]] = [[] for _ in edges]
    for curve in curves:
        for step, *values in zip(*map(curve.__getitem__, _COLUMNS), strict=True):
            points[bisect_left(edges, step)].append((step, *values))
    rows = [_merge(edge, each) for edge, each in zip(edges, points, strict=True)]
    columns = (array("d", column) for column in zip(*rows, strict=True))
    return Curve(dict(zip(_COLUMNS, columns, strict=True)), max(each.stride for each in curves))


def _merge(step: float, points: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the point at `step` that covers these points; NaN where none has a finite value, or
    their sum is too large for a float.
    """
    time = max(point[1] for point in points)
    missing = step, time, nan, nan, 0.0, nan, nan
    known = [point for point in points if not isnan(point[2])]
    if not known:
        return missing
    _, _, _, totals, counts, lows, highs = zip(*known, strict=True)
    try:
        total = fsum(totals)
    except OverflowError:
        return missing
    count = fsum(counts)
    return step, time, total / count, total, count, min(lows), max(highs)
