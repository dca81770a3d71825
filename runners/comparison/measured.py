"""What a record has measured of its steady part: rates, shares, memory, utilisation, energy.

Everything is read through roll-ups, so that a run of days costs as much as one of minutes.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from runners.comparison import Line
from runners.events import PHASES
from runners.record import Record
from runners.rollup import Series
from runners.series import GPU, HOST, PROCS, STEPS
from runners.statistics import Figures, steady_from
from runners.words import shares_first

STRETCHES = 20
POINTS = 300  # of a curve that is drawn
_ROWS, _LEAST = 16_000, 128  # of all ranks together, and of each at least


class Steady(NamedTuple):
    """The timed part of a run without what was not steady yet.

    `rates` (samples/s) are of consecutive stretches of equal time; `start` and `end` are Unix
    times, `left_out` the share of the timed seconds before `start`.
    """

    rates: list[float]
    start: float
    end: float
    left_out: float


class _Rank(NamedTuple):
    """Running sums of a rank, from 0 on."""

    seconds: Figures
    samples: Figures
    time: Figures


def steady(record: Record) -> Steady | None:
    """None where a rank has measured nothing but warm-up."""
    keys = record.keys(STEPS)
    points = max(_ROWS // max(len(keys), 1), _LEAST)
    ranks = [_rank(record, key, points) for key in keys]
    windows = min((len(rank.seconds) - 1 for rank in ranks), default=0)
    if windows < 1:
        return None
    costs = 1 / _rates(ranks, 0.0, min(windows, 2 * STRETCHES))
    begun = steady_from(costs.tolist()) / len(costs)
    stretches = max(1, min(STRETCHES, int(windows * (1 - begun))))
    lead = ranks[0]
    start = float(np.interp(begun * lead.seconds[-1], lead.seconds, lead.time))
    rates = _rates(ranks, begun, stretches)
    return Steady(rates.tolist(), start, float(lead.time[-1]), begun)


def _rank(record: Record, rank: int, points: int) -> _Rank:
    names = ("timed_seconds", "timed_samples")
    curve = record.curve(STEPS, rank, columns=names, points=min(points, 2000))
    seconds, samples, time = (np.asarray(curve[name]) for name in (*names, "time"))
    timed = np.nan_to_num(seconds) > 0
    seconds, samples, time = seconds[timed], samples[timed], time[timed]
    if not len(seconds):
        return _Rank(seconds, samples, time)
    begun = time[0] - seconds[0]
    return _Rank(_summed(seconds), _summed(samples), np.concatenate([[begun], time]))


def _summed(values: Figures) -> Figures:
    return np.concatenate([[0.0], np.cumsum(values)])


def _rates(ranks: list[_Rank], begun: float, stretches: int) -> Figures:
    """The ranks' own rates added up, of stretches of each rank's seconds."""
    total = np.zeros(stretches)
    for rank in ranks:
        edges = np.linspace(begun, 1.0, stretches + 1) * rank.seconds[-1]
        total += np.diff(np.interp(edges, rank.seconds, rank.samples)) / np.diff(edges)
    return total


def phases(record: Record, part: Steady) -> dict[str, float]:
    """Shares of the ranks' seconds, all ranks together, with "other"."""
    sums = _sums(record, STEPS, ("seconds", *PHASES), part.start, None)
    seconds = sum(rank["seconds"] for rank in sums)
    if not seconds:
        return {}
    shares = {name: sum(rank[name] for rank in sums) / seconds for name in PHASES}
    return {**shares, "other": max(0.0, 1.0 - sum(shares.values()))}


def host_memory(record: Record) -> float | None:
    """Bytes: the peaks of the ranks with their loader workers, added up."""
    peaks = [rank["rss_max"] for rank in record.totals(PROCS).values()]
    return float(sum(peaks)) if peaks and None not in peaks else None


def device_memory(record: Record) -> float | None:
    """Bytes in use on the fullest device at its peak."""
    peaks = [gpu["memory_used_max"] for gpu in record.totals(GPU).values()]
    return max((float(peak) for peak in peaks if peak is not None), default=None)


def cpu(record: Record, part: Steady) -> float | None:
    """Percent of one core that all ranks use together."""
    means = _means(record, PROCS, "cpu", part)
    return sum(means) if means else None


def others(record: Record, part: Steady, cores: int) -> float:
    """Cores that were busy with what is no rank of the run; 0 where that is not known."""
    busy, own = _means(record, HOST, "cpu", part), cpu(record, part)
    return max(0.0, busy[0] * cores - own) / 100 if busy and own is not None else 0.0


def gpu(record: Record, part: Steady) -> float | None:
    """Percent of the time in which a kernel ran, the mean of all devices."""
    means = _means(record, GPU, "utilisation", part)
    return sum(means) / len(means) if means else None


def joules_per_sample(record: Record, part: Steady) -> float | None:
    """What all devices took, by their own counters, for each sample that was trained on.

    None where one of them has no counter, or one that began anew.
    """
    gpus = record.keys(GPU)
    total, begun, ended = 0.0, part.start, part.end
    for key in gpus:
        curve = record.curve(GPU, key, columns=("energy",), start=part.start, end=part.end)
        counted = [
            pair for pair in zip(curve["time"], curve["energy"], strict=True) if isfinite(pair[1])
        ]
        if len(counted) < 2 or counted[-1][1] < counted[0][1]:
            return None
        begun, ended = max(begun, counted[0][0]), min(ended, counted[-1][0])
        total += counted[-1][1] - counted[0][1]
    sums = _sums(record, STEPS, ("samples",), begun, ended)
    samples = sum(rank["samples"] for rank in sums)
    return total / samples if gpus and samples else None


def _means(record: Record, series: Series[Any], name: str, part: Steady) -> list[float]:
    columns = (f"{name}_sum", f"{name}_n")
    sums = _sums(record, series, columns, part.start, part.end)
    return [each[columns[0]] / each[columns[1]] for each in sums if each[columns[1]]]


def _sums(
    record: Record,
    series: Series[Any],
    columns: tuple[str, ...],
    start: float,
    end: float | None,
) -> list[dict[str, float]]:
    """Exact sums of each rank (or GPU) over rows that end between two moments."""
    found = []
    for key in record.keys(series):
        curve = record.curve(
            series, key, columns=columns, axis="time", start=start, end=end, points=8
        )
        found.append({name: float(np.nansum(curve[name])) for name in columns})
    return found


# --- curves ---------------------------------------------------------------------------------------


def curves(record: Record) -> dict[str, Line]:
    """What is drawn of a run; see Contestant. Times count from before its first step, for how
    long processes take to start says nothing of training.
    """
    state = record.state
    began = state.facts.time if state.facts else state.started or state.created
    overall = record.overall(points=POINTS)
    found = {}
    if len(overall):
        found["loss"] = Line(
            step=list(overall["step"]),
            time=_since(began, overall["time"]),
            values=_known(overall["loss"]),
        )
    found |= _evaluated(record, began)
    return found | _sampled(record, began)


def _evaluated(record: Record, began: float) -> dict[str, Line]:
    evaluations = record.evaluations()
    evaluations = evaluations[:: -(-len(evaluations) // POINTS) or 1]
    names = shares_first({name: 0 for each in evaluations for name in each.metrics})
    found = {}
    for name in names:
        having = [each for each in evaluations if name in each.metrics]
        found[f"eval {name}"] = Line(
            step=[float(each.step) for each in having],
            time=_since(began, [each.time for each in having]),
            values=[each.metrics[name].value for each in having],
        )
    return found


def _sampled(record: Record, began: float) -> dict[str, Line]:
    gpus = list(record.curves(GPU, columns=("utilisation", "power"), points=POINTS).values())
    rows = min(map(len, gpus), default=0)
    found = {}
    for name, column in (("gpu", "utilisation"), ("power", "power")):
        if rows:
            total = np.sum([np.asarray(curve[column][:rows]) for curve in gpus], axis=0)
            values = _known(total / len(gpus) if name == "gpu" else total)
            if any(value is not None for value in values):
                time = _since(began, gpus[0]["time"][:rows])
                found[name] = Line(time=time, values=values)
    return found


def _since(began: float, times: Any) -> list[float]:
    return [round(time - began, 3) for time in times]


def _known(values: Any) -> list[float | None]:
    return [float(value) if isfinite(value) else None for value in values]
