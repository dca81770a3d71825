"""Smooth a curve by an exponential moving average."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan

WEIGHTS = (0.0, 0.6, 0.9, 0.99)  # of the average so far, against the next value


def moving_average(y: Sequence[float], weight: float) -> list[float]:
    """Return at each value the mean of all up to it, whose weights decay by `weight` for each.

    The weights add up to 1 from the first value on. Values that are not finite have no weight and
    stay gaps.
    """
    total = weights = 0.0
    found = []
    for value in y:
        if isfinite(value):
            total = weight * total + value
            weights = weight * weights + 1.0
            found.append(total / weights)
        else:
            found.append(nan)
    return found
