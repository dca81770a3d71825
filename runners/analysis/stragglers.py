"""Which rank the others wait for, and in which phase it is slow.

All-reduce makes every rank's step equally long, so a straggler shows in two other figures: it waits
less for communication than the other ranks do, and it spends more time in a phase of its own. Both
are durations on one rank's clock; clocks of different hosts are never compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from distrain.runners.instrumentation.sources import NAMED
from distrain.runners.protocol.events import OTHER, PHASES
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.series import STEPS

LOCAL_PHASES = (
    *(phase for phase in PHASES if phase != "comm"),
    OTHER,
)  # independent of other ranks
# Thresholds, as shares of a step. A slow device is slower in every phase, by less than one phase's
# threshold; so all local phases together have one too.
MIN_PHASE_EXCESS = 0.08  # of one phase
MIN_TOTAL_EXCESS = 0.12  # of all local phases, and of the wait of the other ranks
MIN_WAIT = 0.04  # by which the other ranks must wait longer than the straggler
RECENT_S = 10.0  # of a live run
MAX_POINTS = 64  # per rank
MIN_POINTS = 6  # per rank; with fewer, no straggler is named
_COLUMNS = ("steps", "samples", "seconds", "timed_seconds", *PHASES, "overlap", "wait")


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for.

    `phase`: in which it is slow; "other" is the time between the phases.
    `seconds`: how much longer this phase takes per step than on the other ranks.
    `share`: `seconds` as a share of a step.
    `own_wait`, `others_wait`: seconds per step that this rank, and the others, wait for
    communication.
    """

    rank: int
    phase: str
    seconds: float
    share: float
    own_wait: float = msgspec.field(name="own")
    others_wait: float = msgspec.field(name="theirs")

    @property
    def where(self) -> str:
        return "between phases" if self.phase == OTHER else f"in {self.phase}"


class Pace(NamedTuple):
    """A rank's typical step: medians over windows, in seconds, and its mean samples."""

    seconds: float
    phases: dict[str, float]
    wait: float
    samples: float


def find_straggler(record: Record) -> Straggler | None:
    """Return the rank that the others wait for: in the last seconds of a live run, or in all of a
    run that has ended.

    None if no rank is clearly slower, if there is only one, or if there are too few windows.
    """
    paces = measure_paces(record, read_recent_steps(record))
    return find_straggler_among(paces) if times_waits(record) else None


def times_waits(record: Record) -> bool:
    """Return whether the wait for other ranks is timed in every step.

    In a script it is only if the script names it. DDP times few steps, which say nothing of the
    order in which the ranks arrive in the others.
    """
    return not record.config.is_script or record.script_settings().sources.get("comm") == NAMED


def read_recent_steps(record: Record, after_step: int = 0) -> dict[int, Curve]:
    """Return the curve of each rank's recent steps, with at most MAX_POINTS points.

    Of a live run: the last RECENT_S seconds, or 2 × MIN_POINTS windows if these take longer. Of a
    run that has ended: all steps after `after_step`.
    """
    if not record.live:
        return record.curves(
            STEPS, columns=_COLUMNS, points=MAX_POINTS, axis="step", start=after_step + 1
        )
    windows = record.latest().values()
    longest = max((window.seconds for window in windows), default=0.0)
    first = min((window.time for window in windows), default=0.0)
    start = first - max(RECENT_S, 2 * MIN_POINTS * longest)
    return record.curves(STEPS, columns=_COLUMNS, points=MAX_POINTS, axis="time", start=start)


def measure_paces(record: Record, curves: Mapping[int, Curve]) -> dict[int, Pace]:
    """Return the pace of each rank; empty while one of them has too few windows after warm-up."""
    plan = record.state.plan
    paces = {rank: pace for rank, curve in curves.items() if (pace := _pace(curve)) is not None}
    return paces if plan and len(paces) == plan.world_size else {}


def other_seconds(curve: Curve, row: int) -> float:
    """Return the seconds of a window that belong to no phase."""
    seconds: float = curve["seconds"][row] - sum(curve[name][row] for name in PHASES)
    return max(0.0, seconds)


def find_straggler_among(paces: Mapping[int, Pace]) -> Straggler | None:
    """Return the slowest of these ranks, or None if it is not clearly slower."""
    if len(paces) < 2:
        return None
    step = median(pace.seconds for pace in paces.values())
    excess = {name: _excess(paces, [name]) for name in LOCAL_PHASES}
    total_excess = _excess(paces, LOCAL_PHASES)
    # A delay shows as a wait at the first all-reduce, or else once backward has ended.
    waits = [
        {rank: pace.wait for rank, pace in paces.items()},
        {rank: pace.phases["comm"] for rank, pace in paces.items()},
    ]
    own_and_others = [(own, _medians_of_others(own)) for own in waits]
    stragglers = []
    for rank in paces:
        pairs = [(own[rank], others[rank]) for own, others in own_and_others]
        own_wait, others_wait = max(pairs, key=lambda pair: pair[1] - pair[0])
        extra_wait = others_wait - own_wait
        phase = max(LOCAL_PHASES, key=lambda name: excess[name][rank])
        seconds = excess[phase][rank]
        is_slow_in_phase = seconds >= MIN_PHASE_EXCESS * step and extra_wait >= MIN_WAIT * step
        is_slow_in_total = min(total_excess[rank], extra_wait) >= MIN_TOTAL_EXCESS * step
        if is_slow_in_phase or is_slow_in_total:
            stragglers.append(
                Straggler(
                    rank=rank,
                    phase=phase,
                    seconds=seconds,
                    share=seconds / step if step else 0.0,
                    own_wait=own_wait,
                    others_wait=others_wait,
                )
            )
    return max(stragglers, key=lambda straggler: straggler.seconds, default=None)


def _pace(curve: Curve) -> Pace | None:
    # Only steps after the warm-up are timed.
    timed, steps = curve["timed_seconds"], curve["steps"]
    rows = [row for row in range(len(curve)) if timed[row] > 0 and steps[row] > 0]
    if len(rows) < MIN_POINTS:
        return None

    def typical(seconds: Callable[[int], float]) -> float:
        return median(seconds(row) / steps[row] for row in rows)

    phases = {name: typical(curve[name].__getitem__) for name in PHASES}
    phases[OTHER] = typical(lambda row: other_seconds(curve, row))
    return Pace(
        typical(curve["seconds"].__getitem__),
        phases,
        typical(curve["wait"].__getitem__),
        sum(curve["samples"][row] for row in rows) / sum(steps[row] for row in rows),
    )


def _excess(paces: Mapping[int, Pace], phases: Sequence[str]) -> dict[int, float]:
    """Return by how many seconds these phases take longer on each rank than on the others.

    The smaller figure of per step and per sample counts: a larger share of the batch may take
    longer.
    """
    seconds = {rank: sum(pace.phases[name] for name in phases) for rank, pace in paces.items()}
    others = _medians_of_others(seconds)
    per_step = {rank: own - others[rank] for rank, own in seconds.items()}
    samples = {rank: pace.samples for rank, pace in paces.items()}
    if not all(samples.values()):
        return per_step
    per_sample = _medians_of_others({rank: own / samples[rank] for rank, own in seconds.items()})
    return {
        rank: min(per_step[rank], own - per_sample[rank] * samples[rank])
        for rank, own in seconds.items()
    }


def _medians_of_others(values: Mapping[int, float]) -> dict[int, float]:
    """Return for each rank the median of the other ranks' values; needs two ranks or more."""
    ordered = sorted(values.values())
    middles = {len(ordered) // 2 - 1, (len(ordered) - 1) // 2}  # of the list without one value

    def median_without(value: float) -> float:
        position = bisect_left(ordered, value)
        return fmean(
            ordered[middle + 1] if middle >= position else ordered[middle] for middle in middles
        )

    return {rank: median_without(value) for rank, value in values.items()}
