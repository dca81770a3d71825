"""Smoothing of a curve whose points need not be evenly spaced and may have gaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, isfinite, nan


def smoothed(x: Sequence[float], y: Sequence[float], reach: float) -> list[float]:
    """The mean of all points, each weighing exp(-|distance in x| / reach).

    Looking to both sides it lags behind neither: a step stays where it is. What is not finite
    weighs nothing and stays a gap. `x` ascends.
    """
    if not y:
        return []
    weighed = [(value, 1.0) if isfinite(value) else (0.0, 0.0) for value in y]
    nearness = [1.0] + [
        exp((before - after) / reach) if after - before < 700 * reach else 0.0
        for before, after in pairwise(x)
    ]
    from_left = _decayed(weighed, nearness)
    from_right = _decayed(weighed[::-1], [1.0, *nearness[:0:-1]])[::-1]
    return [
        (left + right - value) / (left_weight + right_weight - weight) if weight else nan
        for (value, weight), (left, left_weight), (right, right_weight) in zip(
            weighed, from_left, from_right, strict=True
        )
    ]


def _decayed(
    weighed: Sequence[tuple[float, float]], nearness: Sequence[float]
) -> list[tuple[float, float]]:
    """Running sums of values and of weights, where what is past fades."""
    total = weight = 0.0
    sums = []
    for (value, one), near in zip(weighed, nearness, strict=True):
        total = total * near + value
        weight = weight * near + one
        sums.append((total, weight))
    return sums
