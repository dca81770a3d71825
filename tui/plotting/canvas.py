"""A raster of Braille characters, 2 × 4 dots to a cell, with one ink to a cell.

Rows of dots count from the top. What one dot column has to show of a curve is one upright bar,
so a raster costs as much as it has columns, however many points there are, and a bar that spans
the extremes of its points loses none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

BLANK = 0  # the ink of a cell without dots
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# The dots of one side of a cell from one row to another, both included.
_BARS = [
    [[sum(dots[top : bottom + 1]) for bottom in range(4)] for top in range(4)] for dots in _DOTS
]
_GLYPHS = " " + "".join(chr(0x2800 + dots) for dots in range(1, 256))

Bar = tuple[int, int, int]
Run = tuple[str, int]


class Stretch(NamedTuple):
    """The points of a curve in one dot column: rows of the first, the highest, the lowest and
    the last of them. `joined` to the stretch before, without a gap between.
    """

    column: float
    first: float
    top: float
    bottom: float
    last: float
    joined: bool


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
    for at, row, low, high in zip(
        columns, rows, rows if tops is None else tops, rows if bottoms is None else bottoms
    ):
        if row - row or at - at:
            if is_open:
                found.append(Stretch(column, first, top, bottom, last, joined))
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
                found.append(Stretch(column, first, top, bottom, last, joined))
                joined = True
            column, first, top, bottom, last, is_open = at, row, row, row, row, True
        if low < top:
            top = low
        if high > bottom:
            bottom = high
    if is_open:
        found.append(Stretch(column, first, top, bottom, last, joined))
    return found


class Canvas:
    """`width` × `height` cells; what is drawn beyond them is cut off."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.columns, self.rows = 2 * width, 4 * height
        self._dots = bytearray(width * height)
        self._inks = [BLANK] * (width * height)

    def bars(self, bars: Iterable[Bar], ink: int) -> None:
        """Upright bars: (column, top row, bottom row), rows included and on the canvas."""
        width, dots, inks = self.width, self._dots, self._inks
        for column, top, bottom in bars:
            at = (top >> 2) * width + (column >> 1)
            end = (bottom >> 2) * width + (column >> 1)
            sides = _BARS[column & 1]
            inks[at] = ink
            if at == end:
                dots[at] |= sides[top & 3][bottom & 3]
                continue
            dots[at] |= sides[top & 3][3]
            for between in range(at + width, end, width):
                dots[between] |= sides[0][3]
                inks[between] = ink
            dots[end] |= sides[0][bottom & 3]
            inks[end] = ink

    def curve(
        self,
        curve: Iterable[Stretch],
        ink: int,
        pattern: tuple[int, int] = (1, 1),
        thick: bool = False,
    ) -> None:
        """Stretches joined by straight lines; of a `pattern` (drawn, of) only flat parts have
        gaps, so that no spike is lost in one. A `thick` curve is two dots high.
        """
        drawn, every = pattern
        bars = self._clipped(_traced(curve, self.columns), 1 if thick else 0)
        if every > 1:
            bars = (bar for bar in bars if bar[0] % every < drawn or bar[2] - bar[1] > 1)
        self.bars(bars, ink)

    def _clipped(self, bars: Iterable[tuple[int, float, float]], more: int) -> Iterator[Bar]:
        columns, last = self.columns, self.rows - 1
        for column, top, bottom in bars:
            if 0 <= column < columns:
                bottom += more
                yield (
                    column,
                    0 if top < 0 else last if top > last else int(top + 0.5),
                    last if bottom >= last else 0 if bottom < 0 else int(bottom + 0.5),
                )

    def rule(self, row: int, ink: int) -> None:
        """A row of single dots, one to a cell."""
        self.bars(((column, row, row) for column in range(0, self.columns, 2)), ink)

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


def _traced(curve: Iterable[Stretch], columns: int) -> Iterator[tuple[int, float, float]]:
    """Bars of stretches and of the straight lines between them, each bar touching the next."""
    last_column, last_row = 0, 0.0
    for at, first, top, bottom, last, joined in curve:
        column = int(at)
        if joined and last_row != first:
            slope = (first - last_row) / (column - last_column)
            began = last_row
            for between in range(max(last_column + 1, 0), min(column, columns)):
                row = began + slope * (between - last_column)
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
