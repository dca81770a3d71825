"""What of a record the charts of a run show: one reading, from which each takes its curves."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from math import nan
from typing import Any, NamedTuple

from distrain.runners.protocol.events import PHASES
from distrain.runners.records.evaluation_history import EvaluationHistory
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.rollup import Series
from distrain.runners.records.timeseries.run_curve import RANK_COLUMNS, over_ranks, points_per_rank
from distrain.runners.records.timeseries.series import LOGGED, STEPS
from distrain.tui.data.x_axis import XAxis

_STEP_COLUMNS = (
    *RANK_COLUMNS,
    "loss",
    "samples_per_s",
    "samples_per_s_min",
    "samples_per_s_max",
    "seconds",
    *PHASES,
)
DEFAULT_CHARTS = ("loss", "throughput", "evaluation", "phases")


class ChartView(NamedTuple):
    """Which charts of a run to draw and how.

    `axis` is "step", "epoch" or "time", `span` the part of it to show (None for all), and
    `points` the most points of a line.
    """

    plots: tuple[str, ...] = DEFAULT_CHARTS
    axis: str = "step"
    span: tuple[float, float] | None = None
    points: int = 256

    def shows_all_of(self, other: ChartView) -> bool:
        """Return whether both show the whole record with as many points, on any axis."""
        return self.span is other.span is None and self.points == other.points


class ChartSource:
    """One reading of a record. Data that several charts need is read once."""

    def __init__(self, record: Record, view: ChartView, evaluations: EvaluationHistory) -> None:
        self.record = record
        self.view = view
        self.evaluations = evaluations

    @cached_property
    def steps(self) -> dict[int, Curve]:
        start, end = self._limits
        return self.record.curves(
            STEPS,
            columns=_STEP_COLUMNS,
            points=min(self.view.points, points_per_rank(self._ranks)),
            axis=self.axis.column,
            start=start,
            end=end,
        )

    @cached_property
    def axis(self) -> XAxis:
        return XAxis(self.view.axis, self.record.state.facts)

    @cached_property
    def _limits(self) -> tuple[float | None, float | None]:
        """Between which values of the axis' column the view is."""
        return self.axis.limits(self.view.span) if self.view.span else (None, None)

    @cached_property
    def is_live(self) -> bool:
        return self.record.state.live

    @property
    def _ranks(self) -> int:
        plan = self.record.state.plan
        return plan.world_size if plan else 1

    @cached_property
    def run(self) -> Curve:
        return over_ranks(self.steps.values())

    def gauges(self, series: Series[Any], *names: str) -> dict[int, Curve]:
        """Return the curves of a series sampled by time, over the time of the view's steps."""
        columns = [column for name in names for column in (name, f"{name}_min", f"{name}_max")]
        start, end = self.view.span or (None, None)
        if self.view.span and self.view.axis != "time":
            times = self._positions[0]
            start, end = (times[0], times[-1]) if len(times) else (None, None)
        return self.record.curves(
            series, columns=columns, points=self.view.points, axis="time", start=start, end=end
        )

    def x(self, curve: Curve) -> Sequence[float]:
        """Return the x values of a curve; a curve that has only times gets interpolated ones."""
        if self.axis.column in curve.columns:
            return self.axis.values(curve[self.axis.column])
        times, values = self._positions
        return array("d", [_interpolate(time, times, values) for time in curve["time"]])

    @cached_property
    def _positions(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return times, and the value of the axis at each: by the steps, else by what is logged."""
        axis = self.axis.column
        curve = self.run
        names = self.record.logged() if axis in LOGGED.axes else {}
        if names and not len(curve):
            start, end = self._limits
            curve = self.record.logged_curve(
                next(iter(names)), points=self.view.points, axis=axis, start=start, end=end
            )
        return curve["time"], self.axis.values(curve[axis])


def _interpolate(time: float, times: Sequence[float], values: Sequence[float]) -> float:
    """Return the value at a time by linear interpolation; NaN outside of `times`."""
    right = bisect_left(times, time)
    if right == len(times) or (right == 0 and time < times[0]):
        return nan
    if right == 0:
        return values[0]
    part = (time - times[right - 1]) / ((times[right] - times[right - 1]) or 1.0)
    return values[right - 1] + part * (values[right] - values[right - 1])
