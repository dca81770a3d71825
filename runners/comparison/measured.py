"""Which part of a run is steady, and how fast it was there.

Everything is read through roll-ups, so that a run of days costs as much as one of minutes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runners.record import Record
from runners.series import STEPS
from runners.statistics import Figures, steady_from

STRETCHES = 20
_ROWS, _LEAST = 16_000, 128  # of all ranks together, and of each at least


class Steady(NamedTuple):
    """The timed part of a run without what was not steady yet.

    `rates` (samples/s) are of consecutive stretches of equal time; `start` and `end` are Unix
    times, `step` is the last one before `start`, `left_out` the share of the timed seconds before.
    """

    rates: list[float]
    start: float
    end: float
    step: int
    left_out: float


class _Rank(NamedTuple):
    """Running sums of a rank, from 0 on."""

    seconds: Figures
    samples: Figures
    time: Figures
    step: Figures


def steady(record: Record) -> Steady | None:
    """None where a rank has measured nothing but warm-up."""
    keys = record.keys(STEPS)
    points = max(_ROWS // max(len(keys), 1), _LEAST)
    ranks = [_rank(record, key, points) for key in keys]
    windows = min((len(rank.seconds) - 1 for rank in ranks), default=0)
    if windows < 1:
        return None
    costs = 1 / _rates(ranks, 0.0, min(windows, 2 * STRETCHES))
    found = steady_from(costs.tolist())
    begun = 0.0 if len(costs) < 2 else 0.5 if found is None else found / len(costs)
    stretches = max(1, min(STRETCHES, int(windows * (1 - begun))))
    lead = ranks[0]
    start = float(np.interp(begun * lead.seconds[-1], lead.seconds, lead.time))
    rates = _rates(ranks, begun, stretches)
    step = lead.step[int(np.searchsorted(lead.time, start))]
    return Steady(rates.tolist(), start, float(lead.time[-1]), int(step), begun)


def _rank(record: Record, rank: int, points: int) -> _Rank:
    names = ("timed_seconds", "timed_samples")
    curve = record.curve(STEPS, rank, columns=(*names, "steps"), points=min(points, 2000))
    columns = [np.asarray(curve[name]) for name in (*names, "time", "step", "steps")]
    timed = np.nan_to_num(columns[0]) > 0
    seconds, samples, time, step, steps = (column[timed] for column in columns)
    before = ([time[0] - seconds[0]], [step[0] - steps[0]]) if len(time) else ([], [])
    return _Rank(
        _summed(seconds),
        _summed(samples),
        np.concatenate([before[0], time]),
        np.concatenate([before[1], step]),
    )


def _summed(values: Figures) -> Figures:
    return np.concatenate([[0.0], np.cumsum(values)])


def _rates(ranks: list[_Rank], begun: float, stretches: int) -> Figures:
    """The ranks' own rates added up, of stretches of each rank's seconds."""
    total = np.zeros(stretches)
    for rank in ranks:
        edges = np.linspace(begun, 1.0, stretches + 1) * rank.seconds[-1]
        total += np.diff(np.interp(edges, rank.seconds, rank.samples)) / np.diff(edges)
    return total
