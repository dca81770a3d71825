"""A raster of Braille characters: 2 × 4 dots per cell, which has one colour.

Rows of dots count from the top. Each dot column shows one vertical bar of a curve, from the lowest
to the highest of its points. So no point is lost, and the cost depends on the number of columns,
not on the number of points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, isfinite

BLANK = 0  # the colour of a cell without dots
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# The dots of one side of a cell from one row to another, both inclusive.
_BARS = [
    [[sum(dots[top : bottom + 1]) for bottom in range(4)] for top in range(4)] for dots in _DOTS
]
_GLYPHS = " " + "".join(chr(0x2800 + dots) for dots in range(1, 256))

ColouredText = tuple[str, int]
Bar = tuple[int, float, float]  # column, top row, bottom row, both inclusive
# The points of a curve in one dot column: the column, the rows of the first, highest, lowest and
# last point, and whether they are joined to the points before. A plain tuple, because a named one
# takes several times as long to create.
ColumnSpan = tuple[float, float, float, float, float, bool]


def column_spans(
    columns: Sequence[float],
    rows: Sequence[float],
    tops: Sequence[float] | None = None,
    bottoms: Sequence[float] | None = None,
) -> list[ColumnSpan]:
    """Group points by dot column. Columns ascend; points that are not finite are gaps, and
    extremes that are NaN are ignored.
    """
    found: list[ColumnSpan] = []
    column = first = top = bottom = last = inf
    joined = is_open = False
    extremes = (rows if tops is None else tops), (rows if bottoms is None else bottoms)
    for at, row, highest, lowest in zip(columns, rows, *extremes, strict=True):
        if not (isfinite(row) and isfinite(at)):
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
            column = at
            first = top = bottom = last = row
            is_open = True
        if highest < top:
            top = highest
        if lowest > bottom:
            bottom = lowest
    if is_open:
        found.append((column, first, top, bottom, last, joined))
    return found


class Canvas:
    """A canvas of `width` × `height` cells that clips what is drawn beyond them.

    Where colours meet in a cell, they take turns, or else the last one covers the others.
    """

    def __init__(self, width: int, height: int, takes_turns: bool = True) -> None:
        self.width, self.height = width, height
        self._takes_turns = takes_turns
        self.columns = 2 * width
        self.rows = 4 * height
        self._dots = bytearray(width * height)
        self._colours = [BLANK] * (width * height)
        # The dots of further colours in a cell, by cell and colour.
        self._shared: dict[int, dict[int, int]] = {}

    def curve(
        self,
        curve: Iterable[ColumnSpan],
        colour: int,
        pattern: tuple[int, int] = (1, 1),
        thick: bool = False,
    ) -> None:
        """Draw spans joined by straight lines.

        A `pattern` (drawn, period) leaves gaps in flat parts only, so that no spike is lost. A
        `thick` curve is two dots high.
        """
        drawn, every = pattern
        bars: Iterable[Bar] = joined_bars(curve, self.columns)
        if every > 1:
            bars = (bar for bar in bars if bar[0] % every < drawn or bar[2] - bar[1] > 1)
        if thick:
            bars = ((column, top, bottom + 1) for column, top, bottom in bars)
        self.bars(bars, colour)

    def bars(self, bars: Iterable[Bar], colour: int) -> None:
        width = self.width
        columns = self.columns
        last = self.rows - 1
        dots = self._dots
        colours = self._colours
        for column, highest, lowest in bars:
            if not 0 <= column < columns or highest >= last + 0.5 or lowest < -0.5:
                continue
            top = int(highest + 0.5) if highest > 0 else 0
            bottom = int(lowest + 0.5) if lowest < last else last
            sides = _BARS[column & 1]
            at = (top >> 2) * width + (column >> 1)
            end = (bottom >> 2) * width + (column >> 1)
            first = top & 3
            while at <= end:
                found = sides[first][bottom & 3 if at == end else 3]
                if colours[at] == colour or not (colours[at] and self._takes_turns):
                    colours[at] = colour
                    dots[at] |= found
                else:
                    others = self._shared.setdefault(at, {})
                    others[colour] = others.get(colour, 0) | found
                first = 0
                at += width

    def rule(self, row: int, colour: int) -> None:
        """Draw a row of single dots, one in every other cell."""
        self.bars(((column, row, row) for column in range(0, self.columns, 4)), colour)

    def overlay(self, other: Canvas) -> None:
        """Draw another canvas of the same size over this one; its dots replace those below."""
        for at, dots in enumerate(other._dots):
            if dots:
                self._dots[at] = dots
                self._colours[at] = other._colours[at]
                self._shared.pop(at, None)
        self._shared |= other._shared

    def lines(self, marks: Iterable[tuple[int, int, str, int]] = ()) -> list[list[ColouredText]]:
        """Return each line of cells as texts of one colour, with `marks` (column, line, character,
        colour) in place of dots.

        Colours that meet take turns from cell to cell, so that none hides another.
        """
        dots = self._dots.copy()
        colours = self._colours.copy()
        for at, others in self._shared.items():
            meeting = [(colours[at], dots[at]), *others.items()]
            colours[at], dots[at] = meeting[(at % self.width + at // self.width) % len(meeting)]
        cells = list(dots.decode("latin-1").translate(_GLYPHS))
        for column, line, character, colour in marks:
            at = line * self.width + column
            cells[at] = character
            colours[at] = colour
        starts = range(0, len(cells), self.width)
        return [_runs(cells[at : at + self.width], colours[at : at + self.width]) for at in starts]


def joined_bars(curve: Iterable[ColumnSpan], columns: int) -> Iterator[Bar]:
    """Yield bars of spans and of the straight lines between them; each bar touches the next."""
    last_column = 0
    last_row = 0.0
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
        last_column = column
        last_row = last


def _runs(cells: Sequence[str], colours: Sequence[int]) -> list[ColouredText]:
    """Join cells of one colour; blank cells belong to the text before them."""
    runs: list[ColouredText] = []
    start = 0
    current = BLANK
    for at, colour in enumerate(colours):
        if colour != current and colour:
            if current:
                runs.append(("".join(cells[start:at]), current))
                start = at
            current = colour
    runs.append(("".join(cells[start:]), current))
    return runs
