"""Who holds the others back, and with what.

All-reduce makes every rank's step equally long, so lateness shows in two other places: who waits
least for the others was waited for, and what it spent its time on it spent more on than they did.
Both are durations of one rank's own clock: clocks of two hosts are never compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from runners.events import OTHER, PHASES
from runners.record import Record
from runners.rollup import Curve
from runners.series import STEPS

LOCAL = (*(phase for phase in PHASES if phase != "comm"), OTHER)  # what no other rank prolongs
CLEAR = 0.08  # share of a step by which one phase of one rank must be longer,
ALTOGETHER = 0.12  # or else all that it does alone: a slow device is slow in every phase
FELT = 0.04  # share of a step by which the others must wait longer than that rank
LATEST_S = 10.0  # of a live run
POINTS = 64  # of a rank, at most
LEAST = 6  # points of a rank, below which nothing is said
_COLUMNS = ("steps", "samples", "seconds", "timed_seconds", *PHASES, "overlap", "wait")


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for.

    `phase` is what it is late with: a phase of a window, or "other". It takes `seconds` a step
    longer than on the other ranks, which is `share` of a step. The others wait `theirs` seconds a
    step for communication, this rank `own`.
    """

    rank: int
    phase: str
    seconds: float
    share: float
    own: float
    theirs: float

    @property
    def where(self) -> str:
        return "between its phases" if self.phase == OTHER else f"in {self.phase}"


class Pace(NamedTuple):
    """A rank's usual step: medians over windows, in seconds, and its mean samples."""

    seconds: float
    phases: dict[str, float]
    wait: float
    samples: float


def straggler(record: Record) -> Straggler | None:
    """The rank that holds the others back: over the latest seconds of a live run, else over all.

    None where no rank is clearly late, there is one rank only, or too little is known yet.
    """
    return late_among(paces(record, recent(record)))


def recent(record: Record, after_step: int = 0) -> dict[int, Curve]:
    """Each rank's steps in the latest seconds, or in 2 × LEAST windows where these are longer; of a
    run that has ended, in all after a step. At most POINTS points a rank.
    """
    if not record.live:
        return record.curves(
            STEPS, columns=_COLUMNS, points=POINTS, axis="step", start=after_step + 1
        )
    windows = record.latest().values()
    longest = max((window.seconds for window in windows), default=0.0)
    first = min((window.time for window in windows), default=0.0)
    start = first - max(LATEST_S, 2 * LEAST * longest)
    return record.curves(STEPS, columns=_COLUMNS, points=POINTS, axis="time", start=start)


def paces(record: Record, curves: Mapping[int, Curve]) -> dict[int, Pace]:
    """How each rank does; nothing while one of them has too few windows after its warm-up."""
    plan = record.state.plan
    found = {rank: pace for rank, curve in curves.items() if (pace := _pace(curve)) is not None}
    return found if plan and len(found) == plan.world_size else {}


def _pace(curve: Curve) -> Pace | None:
    # A step is timed once it lies behind the warm-up.
    rows = [row for row in range(len(curve)) if curve["timed_seconds"][row] > 0]
    if len(rows) < LEAST:
        return None

    def usual(seconds: Callable[[int], float]) -> float:
        return median(seconds(row) / curve["steps"][row] for row in rows)

    phases = {name: usual(curve[name].__getitem__) for name in PHASES}
    phases[OTHER] = usual(lambda row: rest(curve, row))
    return Pace(
        usual(curve["seconds"].__getitem__),
        phases,
        usual(curve["wait"].__getitem__),
        sum(curve["samples"][row] for row in rows) / sum(curve["steps"][row] for row in rows),
    )


def rest(curve: Curve, row: int) -> float:
    """Seconds that were in no phase."""
    seconds: float = curve["seconds"][row] - sum(curve[name][row] for name in PHASES)
    return max(0.0, seconds)


def late_among(found: Mapping[int, Pace]) -> Straggler | None:
    """The latest of these ranks, if it is clearly late."""
    if len(found) < 2:
        return None
    step = median(pace.seconds for pace in found.values())
    excess = {name: _excess(found, (name,)) for name in LOCAL}
    altogether = _excess(found, LOCAL)
    # Whatever a rank is late with shows at the first all-reduce, or else when backward has ended.
    waits = [{rank: pace.wait for rank, pace in found.items()}]
    waits.append({rank: pace.phases["comm"] for rank, pace in found.items()})
    pairs = [(own, _of_others(own)) for own in waits]
    late = []
    for rank in found:
        theirs, mine = max(
            ((others[rank], own[rank]) for own, others in pairs), key=lambda pair: pair[0] - pair[1]
        )
        phase = max(LOCAL, key=lambda name: excess[name][rank])
        seconds, felt = excess[phase][rank], theirs - mine
        clear = seconds >= CLEAR * step and felt >= FELT * step
        if clear or min(altogether[rank], felt) >= ALTOGETHER * step:
            share = seconds / step if step else 0.0
            late.append(
                Straggler(
                    rank=rank, phase=phase, seconds=seconds, share=share, own=mine, theirs=theirs
                )
            )
    return max(late, key=lambda one: one.seconds, default=None)


def _excess(found: Mapping[int, Pace], phases: Sequence[str]) -> dict[int, float]:
    """How much longer than on the others these phases take on each rank: per step or per sample,
    whichever is less, for a larger share may well take longer.
    """
    seconds = {rank: sum(pace.phases[name] for name in phases) for rank, pace in found.items()}
    usual = _of_others(seconds)
    plain = {rank: own - usual[rank] for rank, own in seconds.items()}
    samples = {rank: pace.samples for rank, pace in found.items()}
    if not all(samples.values()):
        return plain
    per_sample = _of_others({rank: own / samples[rank] for rank, own in seconds.items()})
    return {
        rank: min(plain[rank], own - per_sample[rank] * samples[rank])
        for rank, own in seconds.items()
    }


def _of_others(values: Mapping[int, float]) -> dict[int, float]:
    """For each rank the median of the others' values; at least two ranks."""
    ordered = sorted(values.values())
    middles = {len(ordered) // 2 - 1, (len(ordered) - 1) // 2}  # of the list without one

    def without(value: float) -> float:
        at = bisect_left(ordered, value)
        return fmean(ordered[middle + (middle >= at)] for middle in middles)

    return {rank: without(value) for rank, value in values.items()}
