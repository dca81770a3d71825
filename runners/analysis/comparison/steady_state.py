"""Which part of a run is steady, and its rates.

Reads roll-ups, so that a run of days costs as much as one of minutes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distrain.runners.analysis.comparison.model import Unit
from distrain.runners.analysis.interval import is_measured
from distrain.runners.analysis.statistics import FloatArray, find_steady_start
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.series import STEPS

MAX_STRETCHES = 20
_TOTAL_POINTS = 16_000  # of all ranks together
_MIN_POINTS, _MAX_POINTS = 128, 2000  # per rank


class SteadyPart(NamedTuple):
    """The timed part of a run without what was not steady at first.

    `rates`: of consecutive stretches of equal length.
    `start`, `end`: Unix times. `step`: the last one before `start`.
    `left_out`: share of the timed seconds before `start`.
    """

    rates: list[float]
    start: float
    end: float
    step: int
    left_out: float


class _RankSums(NamedTuple):
    """A rank's windows, cumulative; each array begins with the start of the first window."""

    seconds: FloatArray
    amount: FloatArray  # samples or steps
    time: FloatArray
    step: FloatArray


def find_steady_part(record: Record, unit: Unit = "samples/s") -> SteadyPart | None:
    """Return the steady part of a run, with rates in `unit`; None if a rank has only warm-up steps.

    Samples/s are those of all ranks together, steps/s the mean of the ranks. If the run never
    becomes steady, its second half is returned.
    """
    keys = record.keys(STEPS)
    points = max(_TOTAL_POINTS // max(len(keys), 1), _MIN_POINTS)
    ranks = [_read_rank(record, key, min(points, _MAX_POINTS), unit) for key in keys]
    windows = min((len(rank.seconds) - 1 for rank in ranks), default=0)
    if windows < 1:
        return None
    coarse = _rates(ranks, 0.0, min(windows, 2 * MAX_STRETCHES))
    left_out = _unsteady_share(1 / coarse) if _are_measured(coarse) else 0.0
    stretches = max(1, min(MAX_STRETCHES, int(windows * (1 - left_out))))
    rates = _rates(ranks, left_out, stretches)
    if not _are_measured(rates):  # a record that somebody has edited
        return None
    if unit == "steps/s":
        rates /= len(ranks)
    first = ranks[0]
    start_s = left_out * first.seconds[-1]  # not a Unix time: the clock may have been set back
    step = first.step[int(np.searchsorted(first.seconds, start_s))]
    return SteadyPart(
        rates=rates.tolist(),
        start=float(np.interp(start_s, first.seconds, first.time)),
        end=float(first.time[-1]),
        step=int(step),
        left_out=left_out,
    )


def _are_measured(rates: FloatArray) -> bool:
    return all(map(is_measured, rates.tolist()))


def _unsteady_share(costs: FloatArray) -> float:
    """Return the share of consecutive costs (seconds per sample) before the steady state."""
    if len(costs) < 2:
        return 0.0
    start = find_steady_start(costs.tolist())
    return 0.5 if start is None else start / len(costs)


def _read_rank(record: Record, rank: int, points: int, unit: Unit) -> _RankSums:
    names = ("timed_seconds", "timed_samples")
    start = None
    if unit == "steps/s":  # windows without known samples are not timed
        names = ("seconds", "steps")
        start = record.config.report.skip_steps + 1
    curve = record.curve(STEPS, rank, columns=(*names, "steps"), points=points, start=start)
    columns = [np.asarray(curve[name]) for name in (*names, "time", "step", "steps")]
    timed = np.nan_to_num(columns[0]) > 0
    seconds, amount, time, step, steps = (column[timed] for column in columns)
    start_time = time[:1] - seconds[:1]
    start_step = step[:1] - steps[:1]
    return _RankSums(
        _cumulative(seconds),
        _cumulative(amount),
        np.concatenate([start_time, time]),
        np.concatenate([start_step, step]),
    )


@np.errstate(all="ignore")
def _cumulative(values: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(values)])


@np.errstate(all="ignore")
def _rates(ranks: list[_RankSums], left_out: float, stretches: int) -> FloatArray:
    """Return the rates of all ranks together in equal stretches of each rank's seconds."""
    total = np.zeros(stretches)
    for rank in ranks:
        edges = np.linspace(left_out, 1.0, stretches + 1) * rank.seconds[-1]
        total += np.diff(np.interp(edges, rank.seconds, rank.amount)) / np.diff(edges)
    return total
