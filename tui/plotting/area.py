"""A stacked area in block characters: each cell shows up to two parts, divided at an eighth."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, pairwise
from math import isfinite, nan
from operator import itemgetter

from distrain.tui.plotting.canvas import BLANK, ColouredText

BLOCKS = " ▁▂▃▄▅▆▇█"
TWO = 1 << 12  # a colour number from which on it is two: that of the text, and times TWO its ground


def means_per_cell(places: Sequence[float], y: Sequence[float], cells: int) -> list[float]:
    """Return the mean of the points in each cell; between points, cells are interpolated.

    `places` ascend, in dots, of which a cell has two. Cells before the first and after the last
    point are NaN.
    """
    sums, counts = [0.0] * cells, [0] * cells
    for place, value in zip(places, y, strict=True):
        if isfinite(place) and isfinite(value) and 0 <= (cell := int(place + 0.5) // 2) < cells:
            sums[cell] += value
            counts[cell] += 1
    known = [cell for cell in range(cells) if counts[cell]]
    found = [sums[cell] / counts[cell] if counts[cell] else nan for cell in range(cells)]
    for left, right in pairwise(known):
        slope = (found[right] - found[left]) / (right - left)
        for cell in range(left + 1, right):
            found[cell] = found[left] + slope * (cell - left)
    return found


def draw_area(
    parts: Sequence[tuple[int, Sequence[float]]], rows: int, high: float
) -> list[list[ColouredText]]:
    """Return lines of text, from the top, with parts stacked from the bottom to `high`.

    Each part has a colour number and a value for each cell.
    """
    columns = list(zip(*(values for _, values in parts), strict=True))
    colours = [colour for colour, _ in parts]
    scale = 8 * rows / high
    heights = [
        [scale * top for top in accumulate(max(value, 0.0) for value in column)]
        for column in columns
    ]
    rows_up = [[_cell(colours, tops, 8 * row) for tops in heights] for row in range(rows)]
    return [_joined(cells) for cells in reversed(rows_up)]


def _joined(cells: Iterable[ColouredText]) -> list[ColouredText]:
    groups = groupby(cells, key=itemgetter(1))
    return [("".join(text for text, _ in same), colour) for colour, same in groups]


def _cell(colours: Sequence[int], tops: Sequence[float], floor: int) -> ColouredText:
    """Return the cell from `floor` to 8 above it, in eighths, of a column with parts up to `tops`.

    Of several parts the two largest are shown, in their order.
    """
    if not isfinite(tops[-1]):
        return " ", BLANK
    ceiling = floor + 8
    first, last = bisect_right(tops, floor), bisect_left(tops, ceiling)
    parts = [*colours, BLANK]
    if first >= last:
        return (BLOCKS[8], parts[first]) if first < len(colours) else (" ", BLANK)
    ends = [floor, *tops[first:last], ceiling]
    shares = [(above - below, at) for at, (below, above) in enumerate(pairwise(ends), first)]
    (_, lower), (_, upper) = sorted(sorted(shares, reverse=True)[:2], key=itemgetter(1))
    sizes = {at: share for share, at in shares}
    eighths = round(8 * sizes[lower] / (sizes[lower] + sizes[upper]))
    if eighths == 0:
        return (BLOCKS[8], parts[upper]) if parts[upper] else (" ", BLANK)
    return BLOCKS[eighths], parts[lower] + (TWO * parts[upper] if eighths < 8 else 0)
