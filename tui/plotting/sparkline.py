"""Bars and sparklines of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isnan, nan

BLOCKS = " ▁▂▃▄▅▆▇█"
PARTS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float], width: int, top: float) -> str:
    """Return values as bars from 0 to `top`, the newest at the right; NaN is a gap.

    With more values than cells, each cell shows the greatest of its values.
    """
    if not values or width < 1 or top <= 0:
        return " " * max(width, 0)
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    cells = [_block(values[a:b], top) for a, b in pairwise(edges)]
    return "".join(cells).rjust(width)


def tall_sparkline(values: Sequence[float], width: int, top: float, rows: int) -> list[str]:
    """Return a sparkline of several rows, the highest first."""
    step = top / rows
    return [
        sparkline(
            [value - row * step if value > row * step else nan for value in values], width, step
        )
        if row
        else sparkline(values, width, step)
        for row in reversed(range(rows))
    ]


def _block(values: Sequence[float], top: float) -> str:
    known = [value for value in values if not isnan(value)]
    if not known:
        return " "
    level = round(max(known) / top * (len(BLOCKS) - 1))
    # A small value is still visible.
    return BLOCKS[min(max(level, 1), len(BLOCKS) - 1)]


def bar(fraction: float | None, width: int) -> str:
    """Return a bar filled from the left, with a resolution of an eighth of a cell."""
    if fraction is None or isnan(fraction):
        return " " * width
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (PARTS[rest] if rest else "")).ljust(width)


def stacked_widths(shares: Sequence[float], width: int) -> list[int]:
    """Return the cells of each share of `width`; their sum is at most `width`."""
    edges = [0]
    total = 0.0
    for share in shares:
        total += max(share, 0.0)
        edges.append(min(round(total * width), width))
    return [b - a for a, b in pairwise(edges)]
