"""Smooth a curve with unevenly spaced points and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, isfinite, nan


def smooth_curve(x: Sequence[float], y: Sequence[float], reach: float) -> list[float]:
    """Return for each point the mean of all, weighted with exp(-|distance in x| / reach).

    The kernel is symmetric, so a step stays in place. Values that are not finite have no weight
    and stay gaps. `x` ascends; the cost is linear in the number of points.
    """
    if not y:
        return []
    weighted = [(value, 1.0) if isfinite(value) else (0.0, 0.0) for value in y]
    nearness = [1.0] + [
        exp((before - after) / reach) if after - before < 700 * reach else 0.0
        for before, after in pairwise(x)
    ]
    from_left = _decayed(weighted, nearness)
    from_right = _decayed(weighted[::-1], [1.0, *nearness[:0:-1]])[::-1]
    return [
        (left + right - value) / (left_weight + right_weight - weight) if weight else nan
        for (value, weight), (left, left_weight), (right, right_weight) in zip(
            weighted, from_left, from_right, strict=True
        )
    ]


def _decayed(
    weighted: Sequence[tuple[float, float]], nearness: Sequence[float]
) -> list[tuple[float, float]]:
    """Return running sums of values and of weights with exponential decay."""
    total = weight = 0.0
    sums = []
    for (value, own_weight), near in zip(weighted, nearness, strict=True):
        total = total * near + value
        weight = weight * near + own_weight
        sums.append((total, weight))
    return sums
