"""A raster of Braille characters, 2 × 4 dots to a cell, with one ink to a cell.

Rows of dots count from the top. What one dot column has to show of a curve is one upright bar,
so a raster costs as much as it has columns, however many points there are, and a bar that spans
the extremes of its points loses none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

BLANK = 0  # the ink of a cell without dots
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# The dots of one side of a cell from one row to another, both included.
_BARS = [
    [[sum(dots[top : bottom + 1]) for bottom in range(4)] for top in range(4)] for dots in _DOTS
]
_GLYPHS = " " + "".join(chr(0x2800 + dots) for dots in range(1, 256))

Run = tuple[str, int]
Bar = tuple[int, float, float]  # column, top row, bottom row, both included
# The points of a curve in one dot column: the column, rows of the first, the highest, the lowest
# and the last of them, and whether no gap is between these points and those before. A plain tuple
# because a named one takes several times as long to make.
Stretch = tuple[float, float, float, float, float, bool]


def stretches(
    columns: Sequence[float],
    rows: Sequence[float],
    tops: Sequence[float] | None = None,
    bottoms: Sequence[float] | None = None,
) -> list[Stretch]:
    """Points by their dot column. Columns ascend; points that are not finite are gaps, and
    extremes that are NaN say nothing.
    """
    found: list[Stretch] = []
    column = first = top = bottom = last = inf
    joined = is_open = False
    extremes = (rows if tops is None else tops), (rows if bottoms is None else bottoms)
    for at, row, highest, lowest in zip(columns, rows, *extremes, strict=True):
        if row - row or at - at:
            if is_open:
                found.append((column, first, top, bottom, last, joined))
            joined = is_open = False
            continue
        at = (at + 0.5) // 1.0
        if is_open and at == column:
            last = row
            if row < top:
                top = row
            if row > bottom:
                bottom = row
        else:
            if is_open:
                found.append((column, first, top, bottom, last, joined))
                joined = True
            column, first, top, bottom, last, is_open = at, row, row, row, row, True
        if highest < top:
            top = highest
        if lowest > bottom:
            bottom = lowest
    if is_open:
        found.append((column, first, top, bottom, last, joined))
    return found


class Canvas:
    """`width` × `height` cells; what is drawn beyond them is cut off."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.columns, self.rows = 2 * width, 4 * height
        self._dots = bytearray(width * height)
        self._inks = [BLANK] * (width * height)

    def curve(
        self,
        curve: Iterable[Stretch],
        ink: int,
        pattern: tuple[int, int] = (1, 1),
        thick: bool = False,
    ) -> None:
        """Stretches joined by straight lines. Of a `pattern` (drawn, of) only flat parts have
        gaps, so that no spike is lost in one. A `thick` curve is two dots high.
        """
        drawn, every = pattern
        bars: Iterable[Bar] = traced(curve, self.columns)
        if every > 1:
            bars = (bar for bar in bars if bar[0] % every < drawn or bar[2] - bar[1] > 1)
        if thick:
            bars = ((column, top, bottom + 1) for column, top, bottom in bars)
        self.bars(bars, ink)

    def bars(self, bars: Iterable[Bar], ink: int) -> None:
        width, columns, last = self.width, self.columns, self.rows - 1
        dots, inks = self._dots, self._inks
        for column, highest, lowest in bars:
            if not 0 <= column < columns or highest >= last + 0.5 or lowest < -0.5:
                continue
            top = int(highest + 0.5) if highest > 0 else 0
            bottom = int(lowest + 0.5) if lowest < last else last
            sides = _BARS[column & 1]
            at = (top >> 2) * width + (column >> 1)
            inks[at] = ink
            if top >> 2 == bottom >> 2:
                dots[at] |= sides[top & 3][bottom & 3]
                continue
            dots[at] |= sides[top & 3][3]
            end = (bottom >> 2) * width + (column >> 1)
            for between in range(at + width, end, width):
                dots[between] |= sides[0][3]
                inks[between] = ink
            dots[end] |= sides[0][bottom & 3]
            inks[end] = ink

    def rule(self, row: int, ink: int) -> None:
        """A row of single dots, one to every other cell."""
        self.bars(((column, row, row) for column in range(0, self.columns, 4)), ink)

    def under(self, above: Canvas) -> None:
        """Lay another canvas of the same size over this one: its dots hide what they cover."""
        for at, dots in enumerate(above._dots):
            if dots:
                self._dots[at] = dots
                self._inks[at] = above._inks[at]

    def lines(self, marks: Iterable[tuple[int, int, str, int]] = ()) -> list[list[Run]]:
        """Every line of cells as runs of one ink; `marks` (column, line, character, ink) are set
        over the dots.
        """
        cells = list(self._dots.decode("latin-1").translate(_GLYPHS))
        inks = self._inks.copy()
        for column, line, character, ink in marks:
            at = line * self.width + column
            cells[at], inks[at] = character, ink
        starts = range(0, len(cells), self.width)
        return [_runs(cells[at : at + self.width], inks[at : at + self.width]) for at in starts]


def traced(curve: Iterable[Stretch], columns: int) -> Iterator[Bar]:
    """Bars of stretches and of the straight lines between them, each bar touching the next."""
    last_column, last_row = 0, 0.0
    for at, first, top, bottom, last, joined in curve:
        column = int(at)
        if joined and last_row != first:
            slope = (first - last_row) / (column - last_column)
            for between in range(max(last_column + 1, 0), min(column, columns)):
                row = last_row + slope * (between - last_column)
                before = row - slope
                yield (
                    between,
                    min(row, before + 1 if before < row else row),
                    max(row, before - 1 if before > row else row),
                )
            near = first - slope
            if near + 1 < top:
                top = near + 1
            elif near - 1 > bottom:
                bottom = near - 1
        elif joined:
            for between in range(max(last_column + 1, 0), min(column, columns)):
                yield between, first, first
        yield column, top, bottom
        last_column, last_row = column, last


def _runs(cells: Sequence[str], inks: Sequence[int]) -> list[Run]:
    """Blank cells belong to whatever is before them."""
    runs: list[Run] = []
    start, current = 0, BLANK
    for at, ink in enumerate(inks):
        if ink != current and ink:
            if current:
                runs.append(("".join(cells[start:at]), current))
                start = at
            current = ink
    runs.append(("".join(cells[start:]), current))
    return runs
