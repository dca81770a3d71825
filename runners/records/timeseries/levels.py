"""The arithmetic of roll-ups: which stored rows of which level cover a range of raw rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

# Roll-ups cost 1/7 more rows, and a plot still gets at least an eighth of the points it asks for.
FACTOR = 8

Aggregate = Literal["sum", "min", "max", "last"]


class RowSpan(NamedTuple):
    """A part of a curve: `first` ≤ row < `last`.

    With `is_stored` these are rows of the curve's level and each becomes a point. Otherwise they
    are raw rows at an edge that fill no row of that level; together they become one point.
    """

    is_stored: bool
    first: int
    last: int


def split_into_spans(low: int, high: int, points: int) -> tuple[int, list[RowSpan]]:
    """Return the finest level at which raw rows low ≤ seq < high make at most `points` points.

    The spans at that level come with it, in order.
    """
    level = 0
    while True:
        size = FACTOR**level
        first = -(-low // size)
        last = high // size
        if first > last:
            spans = [RowSpan(False, low, high)]
        else:
            spans = [
                RowSpan(False, low, first * size),
                RowSpan(True, first, last),
                RowSpan(False, last * size, high),
            ]
        spans = [span for span in spans if span.first < span.last]
        if sum(_count_points(span) for span in spans) <= points:
            return level, spans
        level += 1


def _count_points(span: RowSpan) -> int:
    return span.last - span.first if span.is_stored else 1


def highest_level(rows: int) -> int:
    """Return the highest level that can have a row when there are so many raw rows."""
    level = 0
    while FACTOR ** (level + 1) <= rows:
        level += 1
    return level


def split_by_level(low: int, high: int, level: int) -> Iterator[tuple[int, int, int]]:
    """Yield stored rows that cover raw rows low ≤ seq < high, in order, as (level, first, last).

    No row above `level` is used.
    """
    size = FACTOR**level
    first = -(-low // size)
    last = high // size
    if level == 0:
        if low < high:
            yield 0, low, high
    elif first > last:
        yield from split_by_level(low, high, level - 1)
    else:
        yield from split_by_level(low, first * size, level - 1)
        if first < last:
            yield level, first, last
        yield from split_by_level(last * size, high, level - 1)


def combine(how: Aggregate, values: Sequence[Any]) -> Any:
    """Return what the SQL aggregate of that name gives: None where all values are missing."""
    if how == "last":
        return values[-1] if values else None
    present = [value for value in values if value is not None]
    return _PYTHON[how](present) if present else None


_PYTHON: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}
