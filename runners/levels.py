"""The arithmetic of roll-ups: which rows of which level stand for a range of raw rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

# Roll-ups cost 1/7 more rows, and a plot still gets at least an eighth of the points it asks for.
FACTOR = 8

How = Literal["sum", "min", "max", "last"]


def spans(low: int, high: int, points: int) -> tuple[int, list[tuple[bool, int, int]]]:
    """The finest level at which low ≤ seq < high is at most `points` rows, and its spans.

    A span is (True, first, last) in rows of that level, or (False, low, high) in raw rows
    that are to become one point.
    """
    level = 0
    while True:
        size = FACTOR**level
        first, last = -(-low // size), high // size
        if first > last:
            found = [(False, low, high)]
        else:
            found = [(False, low, first * size), (True, first, last), (False, last * size, high)]
        found = [span for span in found if span[1] < span[2]]
        if sum(end - begin if whole else 1 for whole, begin, end in found) <= points:
            return level, found
        level += 1


def top(rows: int) -> int:
    """The highest level that could have a row standing for so many raw rows."""
    level = 0
    while FACTOR ** (level + 1) <= rows:
        level += 1
    return level


def pieces(low: int, high: int, level: int) -> Iterator[tuple[int, int, int]]:
    """Raw rows low ≤ seq < high as ranges (level, first, last) of stored rows, in order."""
    size = FACTOR**level
    first, last = -(-low // size), high // size
    if level == 0:
        if low < high:
            yield 0, low, high
    elif first > last:
        yield from pieces(low, high, level - 1)
    else:
        yield from pieces(low, first * size, level - 1)
        if first < last:
            yield level, first, last
        yield from pieces(last * size, high, level - 1)


def combine(how: How, values: Sequence[Any]) -> Any:
    """What the SQL aggregate of the same name gives."""
    if how == "last":
        return values[-1] if values else None
    present = [value for value in values if value is not None]
    return _PYTHON[how](present) if present else None


_PYTHON: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}
