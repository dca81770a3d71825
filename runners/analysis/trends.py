"""Slow changes over a run: growing memory, and steps that become longer or shorter.

Kendall's tau tells a trend from noise, and the median of the slopes between all points (Theil 1950,
Sen 1968) measures it: neither follows single outliers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import isnan
from statistics import median
from typing import Any, NamedTuple

from distrain.runners.analysis.stragglers import other_seconds
from distrain.runners.protocol.events import OTHER, PHASES
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.rollup import Series
from distrain.runners.records.timeseries.series import GPU, HOST, PROCS, STEPS

CURVE_POINTS = 128  # at most; at least an eighth of them where there are as many rows
MIN_POINTS = 12  # of a trend
MAX_POINTS = 32  # of a trend, because all pairs of points are compared
SETTLING = 1 / 3  # share of a run in which caches fill and memory may grow
MIN_AGREEMENT = 0.6  # Kendall's tau
MIN_GROWTH = 0.03  # share of the memory in use
MIN_GROWTH_BYTES = 16 * 2**20
RECENT_S = 60.0  # at the end, whose peak is the memory of a host that is in use
MIN_DRIFT = 0.15  # share of the shorter step
MIN_DRIFT_S = 30.0  # of training


class Trend(NamedTuple):
    """A straight line through points (x, y).

    `agreement`: Kendall's tau. `first`, `last`: y of the line at both ends, but no value below or
    above all points: the line through a curve may begin below zero.
    """

    slope: float
    agreement: float
    first: float
    last: float


class MemoryGrowth(NamedTuple):
    """Memory that grows from `first` to `last` bytes.

    `owner`: rank or GPU, as shown. `per_step`: bytes.
    `steps_until_full`: of the GPU, or of the rank's host with all ranks that grow there; None if
    its memory is not known.
    """

    owner: str
    per_step: float
    first: float
    last: float
    steps_until_full: float | None = None


class Drift(NamedTuple):
    """The seconds of a step at the start and at the end, and the phase that changed most."""

    first: float
    last: float
    phase: str


def fit_trend(x: Sequence[float], y: Sequence[float]) -> Trend | None:
    """Return the trend of y over x; None with fewer than MIN_POINTS points. NaN is skipped."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if not isnan(b)]
    stride = max(1, -(-len(points) // MAX_POINTS))
    points = points[::stride]
    pairs = [(b[0] - a[0], b[1] - a[1]) for a, b in combinations(points, 2) if b[0] > a[0]]
    if len(points) < MIN_POINTS or not pairs:
        return None
    slope = median(dy / dx for dx, dy in pairs)
    rising = sum(1 for _, dy in pairs if dy > 0)
    falling = sum(1 for _, dy in pairs if dy < 0)
    agreement = (rising - falling) / len(pairs)
    level = median(b - slope * a for a, b in points)
    least, most = min(b for _, b in points), max(b for _, b in points)
    first, last = (min(max(level + slope * points[at][0], least), most) for at in (0, -1))
    return Trend(slope, agreement, first, last)


# --- memory ----------------------------------------------------------------------------------


def find_memory_growth(record: Record) -> MemoryGrowth | None:
    """Return the memory that grows most in the current attempt, of the ranks with their loader
    processes and of the GPUs; None if none grows.
    """
    grown = [*_memory_growths(record, PROCS, "rss"), *_memory_growths(record, GPU, "memory_used")]
    return max(grown, key=lambda growth: growth.last / max(growth.first, 1.0), default=None)


def _memory_growths(record: Record, series: Series[Any], column: str) -> Iterator[MemoryGrowth]:
    steps = record.curve(STEPS, 0, columns=("step",), points=CURVE_POINTS)
    attempts = record.attempts()
    facts = record.state.facts
    start = attempts[-1].step if attempts else facts.start_step if facts else 0
    grown: dict[int, Trend] = {}
    for key, curve in record.curves(series, columns=(column,), points=CURVE_POINTS).items():
        at_step = [_step_at(time, steps["time"], steps["step"]) for time in curve["time"]]
        settled = start + SETTLING * (max(at_step, default=start) - start)
        rows = [row for row, step in enumerate(at_step) if step > settled]
        if not _may_have_grown([curve[column][row] for row in rows]):
            continue
        found = fit_trend([at_step[row] for row in rows], [curve[column][row] for row in rows])
        if found is None or found.agreement < MIN_AGREEMENT:
            continue
        if found.last - found.first >= max(MIN_GROWTH_BYTES, MIN_GROWTH * found.last):
            grown[key] = found
    if not grown:
        return
    if series is GPU:
        left = _until_gpu_full(record, grown)
    else:
        since = max(steps["time"][-1] - RECENT_S, attempts[-1].time if attempts else 0.0)
        left = _until_host_full(record, grown, since)
    for key, steps_left in left.items():
        found = grown[key]
        owner = record.state.gpu_name(key) if series is GPU else f"rank {key}"
        yield MemoryGrowth(owner, found.slope, found.first, found.last, steps_left)


def _may_have_grown(values: Sequence[float]) -> bool:
    """Return whether the last third is above the first by half of what counts as growth.

    This cheap test saves the trend of nearly all ranks of a large run.
    """
    known = [value for value in values if not isnan(value)]
    third = len(known) // 3
    if not third:
        return False
    first = median(known[:third])
    last = median(known[-third:])
    return last - first >= max(MIN_GROWTH_BYTES, MIN_GROWTH * last) / 2


def _step_at(time: float, times: Sequence[float], steps: Sequence[float]) -> float:
    """Return the last step that was finished at a time, to the precision of windows; 0 if none."""
    row = bisect_right(times, time)
    return steps[row - 1] if row else 0.0


def _until_gpu_full(record: Record, grown: Mapping[int, Trend]) -> dict[int, float | None]:
    """Return in how many steps each of these GPUs is full; None if its size is not known."""
    latest = record.latest(GPU)
    totals = {gpu: latest[gpu].memory_total if gpu in latest else None for gpu in grown}
    return {
        gpu: max(0.0, total - grown[gpu].last) / grown[gpu].slope if total else None
        for gpu, total in totals.items()
    }


def _until_host_full(
    record: Record, grown: Mapping[int, Trend], since: float
) -> dict[int, float | None]:
    """Return in how many steps the host of each of these ranks is full, if all that grow there
    continue; None if its memory was not sampled `since` then.
    """
    host_of = record.state.host_numbers({info.rank: info.host for info in record.ranks()})
    columns = ("memory_used_max", "memory_total")
    hosts = record.totals(HOST, columns, dict.fromkeys(record.keys(HOST), since))
    slopes: dict[int, float] = defaultdict(float)
    for rank, trend in grown.items():
        slopes[host_of.get(rank, 0)] += trend.slope
    left: dict[int, float | None] = {}
    for rank in grown:
        host = host_of.get(rank, 0)
        used, total = (hosts.get(host, {}).get(name) for name in columns)
        if used is None or total is None:
            left[rank] = None
        else:
            left[rank] = max(0.0, total - used) / slopes[host]
    return left


# --- the time of a step ------------------------------------------------------------------------


def find_drift(record: Record) -> Drift | None:
    """Return how the time of a step has changed over the run; None if it has not."""
    columns = ("steps", "seconds", "timed_seconds", *PHASES)
    curve = record.curve(STEPS, 0, columns=columns, points=CURVE_POINTS)
    timed, taken = curve["timed_seconds"], curve["steps"]
    rows = [row for row in range(len(curve)) if timed[row] > 0 and taken[row] > 0]
    if sum(curve["seconds"][row] for row in rows) < MIN_DRIFT_S:
        return None

    def per_step(name: str) -> list[float]:
        return [curve[name][row] / curve["steps"][row] for row in rows]

    steps = [curve["step"][row] for row in rows]
    whole = fit_trend(steps, per_step("seconds"))
    if whole is None or abs(whole.agreement) < MIN_AGREEMENT:
        return None
    if abs(whole.last - whole.first) < MIN_DRIFT * min(whole.first, whole.last):
        return None
    trends = {name: fit_trend(steps, per_step(name)) for name in PHASES}
    other = [other_seconds(curve, row) / curve["steps"][row] for row in rows]
    trends[OTHER] = fit_trend(steps, other)
    phase = max(trends, key=lambda name: _share_of_change(trends[name], whole))
    return Drift(whole.first, whole.last, phase)


def _share_of_change(phase: Trend | None, whole: Trend) -> float:
    return 0.0 if phase is None else phase.slope / whole.slope
