"""Bars and small histories made of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isnan

BLOCKS = " ▁▂▃▄▅▆▇█"
PARTS = " ▏▎▍▌▋▊▉█"


def spark(values: Sequence[float], width: int, top: float) -> str:
    """The last values as bars of 0 to `top`, newest at the right; a gap where one is missing.

    Where there are more values than cells each cell shows the greatest of its share.
    """
    if not values or width < 1 or top <= 0:
        return " " * max(width, 0)
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    cells = [_block(values[a:b], top) for a, b in pairwise(edges)]
    return "".join(cells).rjust(width)


def _block(values: Sequence[float], top: float) -> str:
    known = [value for value in values if not isnan(value)]
    if not known:
        return " "
    level = round(max(known) / top * (len(BLOCKS) - 1))
    # What is there but small is not nothing.
    return BLOCKS[min(max(level, 1), len(BLOCKS) - 1)]


def bar(fraction: float | None, width: int) -> str:
    """A bar filled from the left to an eighth of a cell."""
    if fraction is None or isnan(fraction):
        return " " * width
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (PARTS[rest] if rest else "")).ljust(width)


def stacked(shares: Sequence[float], width: int) -> list[int]:
    """Cells of each of several shares of `width`; they never add up to more."""
    edges, total = [0], 0.0
    for share in shares:
        total += max(share, 0.0)
        edges.append(min(round(total * width), width))
    return [b - a for a, b in pairwise(edges)]
