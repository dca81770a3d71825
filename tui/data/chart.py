"""A chart as plain values: feeds draw it from a record, plot panes show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from typing import NamedTuple

from distrain.runners import formatting
from distrain.tui.marks import Mark


class ChartLine(NamedTuple):
    """A curve. NaN is a gap; `low` and `high` are the extremes of the values behind each point.

    A line that `is_for_solo` is drawn only where it is shown alone.
    """

    name: str
    mark: Mark
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    is_for_solo: bool = False

    @property
    def has_values(self) -> bool:
        return not all(map(isnan, self.y))


class Chart(NamedTuple):
    """Curves over one x axis: "step", "epoch", "time" (Unix seconds) or "duration" (seconds).

    `format_value` formats a y value. `span` is the part of the x axis to show; None shows all.
    `empty_text` stands in place of a chart without values. `stacked` lines are parts of a whole.
    """

    title: str
    lines: Sequence[ChartLine]
    x_axis: str = "step"
    unit: str = ""
    format_value: Callable[[float], str] = formatting.figure
    span: tuple[float, float] | None = None
    empty_text: str = "no values"
    stacked: bool = False
