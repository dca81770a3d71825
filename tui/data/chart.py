"""A chart as plain values: what a plot widget is given and what the feed makes of a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from runners import words
from tui.marks import Mark


class Line(NamedTuple):
    """One series; NaN is a gap. `low` and `high` are the extremes that each point stands for."""

    name: str
    mark: Mark
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


class Chart(NamedTuple):
    """`x_axis` is "step", "epoch", "time" (Unix seconds) or "duration" (seconds).

    `worded` words a value of y.

    `span` is the part of the x axis to show, None for all that there is.
    """

    title: str
    lines: Sequence[Line]
    x_axis: str = "step"
    unit: str = ""
    worded: Callable[[float], str] = words.figure
    span: tuple[float, float] | None = None
    empty: str = "nothing yet"
