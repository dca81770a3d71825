"""What creeps over a run: memory, and the time of a step. A trend is told from noise by its ranks
(Kendall's tau) and measured by the median of all slopes (Theil and Sen), so that neither a spike
nor a pause bends it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import isnan
from statistics import median
from typing import Any, NamedTuple

from runners.events import OTHER, PHASES
from runners.record import Record
from runners.rollup import Series
from runners.series import GPU, PROCS, STEPS
from runners.stragglers import rest

POINTS = 128  # of a curve; at least an eighth of them where there are as many rows
LEAST, MOST = 12, 32  # points: below there is no trend, and all pairs of more would cost too much
SETTLING = 1 / 3  # of a run, in which caches fill and memory may grow
AGREEMENT = 0.6  # Kendall's tau of what counts as a trend
GROWN, GROWN_BYTES = 0.03, 16 * 2**20  # growth that counts: share of what is used, and at least
DRIFTED, DRIFT_S = 0.15, 30.0  # change of a step that counts, and the training it must go on for


class Trend(NamedTuple):
    """A straight line through points (x, y), as far as there is one."""

    slope: float
    agreement: float
    first: float
    last: float


class Creep(NamedTuple):
    """Memory that grows: whose, by how many bytes a step, from and to how many bytes; `full` is
    the number of further steps until `limit` bytes, where that is known.
    """

    of: str
    per_step: float
    first: float
    last: float
    full: float | None = None


class Drift(NamedTuple):
    """A step that gets longer or shorter: seconds at first and at last, and the phase that
    changed most.
    """

    first: float
    last: float
    phase: str


def trend(x: Sequence[float], y: Sequence[float]) -> Trend | None:
    """None with fewer than LEAST points. `first` and `last` are y on the line at both ends."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if not isnan(b)]
    points = points[:: -(-len(points) // MOST) or 1]
    pairs = [(b[0] - a[0], b[1] - a[1]) for a, b in combinations(points, 2) if b[0] > a[0]]
    if len(points) < LEAST or not pairs:
        return None
    slope = median(dy / dx for dx, dy in pairs)
    agreement = sum((dy > 0) - (dy < 0) for _, dy in pairs) / len(pairs)
    level = median(b - slope * a for a, b in points)
    return Trend(slope, agreement, level + slope * points[0][0], level + slope * points[-1][0])


# --- memory ----------------------------------------------------------------------------------


def creeping(record: Record) -> Creep | None:
    """The memory that grows most, of the ranks with their loader processes and of the GPUs, since
    they were started (anew); None where none does.
    """
    found = [*_creeps(record, PROCS, "rss", "rank"), *_creeps(record, GPU, "memory_used", "GPU")]
    return max(found, key=lambda creep: creep.last / max(creep.first, 1.0), default=None)


def _creeps(record: Record, series: Series[Any], name: str, of: str) -> Iterator[Creep]:
    steps = record.curve(STEPS, 0, columns=("step",), points=POINTS)
    first = next((one.step for one in record.attempts()[-1:]), 0)
    for key, curve in record.curves(series, columns=(name,), points=POINTS).items():
        at = [_step_at(time, steps["time"], steps["step"]) for time in curve["time"]]
        since = first + SETTLING * (max(at, default=first) - first)
        rows = [row for row, step in enumerate(at) if step > since]
        if not _has_grown([curve[name][row] for row in rows]):
            continue
        found = trend([at[row] for row in rows], [curve[name][row] for row in rows])
        if found and found.agreement >= AGREEMENT:
            grown = found.last - found.first
            if grown >= max(GROWN_BYTES, GROWN * found.last):
                full = _until_full(record, series, key, found)
                whose = record.state.gpu(key) if series is GPU else f"{of} {key}"
                yield Creep(whose, found.slope, found.first, found.last, full)


def _has_grown(values: Sequence[float]) -> bool:
    """Whether the last third lies so far above the first that a trend is worth looking for: of
    many ranks that spares nearly all slopes.
    """
    known = [value for value in values if not isnan(value)]
    third = len(known) // 3
    if not third:
        return False
    first, last = median(known[:third]), median(known[-third:])
    return last - first >= max(GROWN_BYTES, GROWN * last) / 2


def _step_at(time: float, times: Sequence[float], steps: Sequence[float]) -> float:
    """The last step that was finished at a time, as far as windows tell; 0 before the first."""
    row = bisect_right(times, time)
    return steps[row - 1] if row else 0.0


def _until_full(record: Record, series: Series[Any], key: int, found: Trend) -> float | None:
    if series is GPU:
        total = getattr(record.latest(GPU).get(key), "memory_total", None)
    else:
        total = (record.state.provenance.get("host") or {}).get("memory")
    return max(0.0, total - found.last) / found.slope if total else None


# --- the time of a step ------------------------------------------------------------------------


def drifting(record: Record) -> Drift | None:
    """How the time of a step has changed over the run; None where it has not."""
    columns = ("steps", "seconds", "timed_seconds", *PHASES)
    curve = record.curve(STEPS, 0, columns=columns, points=POINTS)
    rows = [row for row in range(len(curve)) if curve["timed_seconds"][row] > 0]
    if sum(curve["seconds"][row] for row in rows) < DRIFT_S:
        return None

    def per_step(name: str) -> list[float]:
        return [curve[name][row] / curve["steps"][row] for row in rows]

    steps = [curve["step"][row] for row in rows]
    found = trend(steps, per_step("seconds"))
    if found is None or abs(found.agreement) < AGREEMENT:
        return None
    if abs(found.last - found.first) < DRIFTED * min(found.first, found.last):
        return None
    by_phase = {name: trend(steps, per_step(name)) for name in PHASES}
    by_phase[OTHER] = trend(steps, [rest(curve, row) / curve["steps"][row] for row in rows])
    phase = max(by_phase, key=lambda name: _change(by_phase[name], found))
    return Drift(found.first, found.last, phase)


def _change(one: Trend | None, whole: Trend) -> float:
    """How much of the whole's change is this one's."""
    return 0.0 if one is None else one.slope / whole.slope
