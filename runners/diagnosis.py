"""What a run is bound by, in one sentence, with its evidence and what to try.

What may end the run is told first, then what all ranks wait for, then what changes, then where
the time goes. The figures are those of the record; nothing is measured for it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from runners import words
from runners.events import OTHER, PHASES
from runners.record import Record
from runners.rollup import Curve
from runners.series import GPU, HOST
from runners.state import RunState
from runners.stragglers import Straggler, late_among, paces, recent, rest
from runners.trends import creeping, drifting

Kind = Literal[
    "failed",
    "unknown",
    "memory",
    "creeping",
    "straggler",
    "drifting",
    "input",
    "communication",
    "compute",
    "nothing",
]
NEAR = 0.95  # of the memory that there is
MUCH = 0.25  # share of a step that is waiting
MOSTLY = 0.65  # share of a step that is computing
IDLE = 85.0  # percent of the host's cores, below which some are free


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """`evidence` are the figures that the sentence rests on, `advice` what to try; either may be
    empty. `straggler` is there whatever comes before it.
    """

    kind: Kind
    sentence: str
    evidence: str = ""
    advice: str = ""
    straggler: Straggler | None = None


class _Case(NamedTuple):
    """What there is to judge by; `shares` are parts of all ranks' time, by phase, "other" and
    "overlap".
    """

    record: Record
    state: RunState
    shares: dict[str, float]
    late: Straggler | None


def diagnose(record: Record, after_step: int = 0) -> Diagnosis:
    """What holds for a live run now (its latest seconds; memory and drift: all of it), for an
    ended one over its steps after one. Reads as many points whatever the run's length.
    """
    state = record.state
    if state.error is not None and not state.live:
        return Diagnosis(kind="failed", sentence=words.line(state.reason or state.error.message))
    curves = recent(record, after_step)
    found = paces(record, curves)
    if not found:
        return Diagnosis(kind="unknown", sentence="too few steps to say where the time goes")
    case = _Case(record, state, shares(curves), late_among(found))
    told = next(diagnosis for judge in _ORDER if (diagnosis := judge(case)) is not None)
    return msgspec.structs.replace(told, straggler=case.late)


def shares(curves: Mapping[int, Curve]) -> dict[str, float]:
    """Parts of the ranks' time by phase, the rest as "other"; beside them "overlap"."""
    seconds = sum(sum(curve["seconds"]) for curve in curves.values())
    parts = {
        name: sum(sum(curve[name]) for curve in curves.values()) for name in (*PHASES, "overlap")
    }
    parts[OTHER] = sum(rest(curve, row) for curve in curves.values() for row in range(len(curve)))
    return {name: part / seconds if seconds else 0.0 for name, part in parts.items()}


# --- what may end the run ------------------------------------------------------------------------


def _near_limit(case: _Case) -> Diagnosis | None:
    for series, named in ((GPU, case.state.gpu), (HOST, case.state.machine)):
        for key, sample in case.record.latest(series).items():
            used, total = sample.memory_used, sample.memory_total
            if not case.state.live:
                used = case.record.totals(series)[key]["memory_used_max"]
            if used and total and used >= NEAR * total:
                return Diagnosis(
                    kind="memory",
                    sentence=f"the memory of {named(key)} is nearly full",
                    evidence=f"{words.size(used)} of {words.size(total)} are in use",
                    advice="a smaller train.batch_size with train.accumulate, or fewer ranks "
                    "and loader processes there",
                )
    return None


def _creeps(case: _Case) -> Diagnosis | None:
    creep = creeping(case.record)
    if creep is None:
        return None
    rate = words.size(1000 * creep.per_step)
    evidence = f"from {words.size(creep.first)} to {words.size(creep.last)}"
    if creep.full is not None:
        evidence += f"; full in {words.count(creep.full)} steps at this pace"
    return Diagnosis(
        kind="creeping",
        sentence=f"the memory of {creep.of} creeps up by {rate} per thousand steps",
        evidence=evidence,
        advice="what outlives its step: losses kept as tensors, a cache in the data set; "
        "loader processes copy Python objects bit by bit, arrays they share",
    )


# --- what all wait for, and what changes ---------------------------------------------------------

_LATE = {
    "data": "what rank {} reads from: its disk, its loader processes, the cores beside it",
    "forward": "the device of rank {}: its clocks, its heat, who else is on it",
    "backward": "the device of rank {}: its clocks, its heat, who else is on it",
    "optimizer": "what rank {} alone does around the optimizer's step",
    OTHER: "what rank {} alone does between steps: hooks, logging",
}


def _late(case: _Case) -> Diagnosis | None:
    late = case.late
    if late is None:
        return None
    longer = f"{words.milliseconds(late.seconds)} a step longer than elsewhere"
    what = "the rest of its step" if late.phase == OTHER else f"its {late.phase}"
    return Diagnosis(
        kind="straggler",
        sentence=f"waiting for rank {late.rank}, late {late.where} "
        f"by {words.percent(late.share)} of a step",
        evidence=f"{what} takes {longer}; the others wait "
        f"{words.milliseconds(late.theirs)} a step, rank {late.rank} "
        f"{words.milliseconds(late.own)}",
        advice=_LATE[late.phase].format(late.rank),
    )


_DRIFT = {
    "data": "what the data set keeps or opens anew, and the disk that it lies on",
    "comm": "what else the network carries, and the slowest rank's clocks",
    "optimizer": "what grows with the steps in the optimizer and its hooks",
    OTHER: "what grows with the steps between them: hooks, logging",
}


def _drifts(case: _Case) -> Diagnosis | None:
    drift = drifting(case.record)
    if drift is None:
        return None
    change = drift.last / drift.first - 1 if drift.first > 0 else 0.0
    how = "longer" if change > 0 else "shorter"
    return Diagnosis(
        kind="drifting",
        sentence=f"steps get {how}: by {words.percent(abs(change))} over the run",
        evidence=f"{words.milliseconds(drift.first)} at first, {words.milliseconds(drift.last)} "
        f"at last; most of it is {drift.phase}",
        advice=_DRIFT.get(drift.phase, "the clocks and the heat of the devices, and who is on them")
        if change > 0
        else "",
    )


# --- where the time goes -------------------------------------------------------------------------


def _input(case: _Case) -> Diagnosis | None:
    data, workers = case.shares["data"], case.record.config.data.workers
    if data < MUCH or data < case.shares["comm"]:
        return None
    cores, busy = _cores(case.state), _busy(case.record)
    evidence = f"{words.percent(data)} of a step is waiting for data; loader processes: {workers}"
    if cores:
        evidence += f", cores: {cores}"
    if busy is not None:
        evidence += f", {busy:.0f} % busy"
    return Diagnosis(
        kind="input",
        sentence="input-bound: the ranks wait for data",
        evidence=evidence,
        advice=_loading(case, workers, cores, busy),
    )


def _loading(case: _Case, workers: int, cores: int | None, busy: float | None) -> str:
    plan = case.state.plan
    ranks = plan.world_size if plan else 1
    if not workers:
        return f"data.workers = {ranks}, or more: they load while the ranks compute"
    if cores and workers < cores and (busy is None or busy < IDLE):
        return (
            f"data.workers = {min(cores, 2 * workers)}, "
            f"or data.prefetch = {2 * case.record.config.data.prefetch}"
        )
    return "less work for each sample: smaller files, decoded beforehand, fewer augmentations"


def _communication(case: _Case) -> Diagnosis | None:
    comm = case.shares["comm"]
    if comm < MUCH:
        return None
    facts, config = case.state.facts, case.record.config
    evidence = f"{words.percent(comm)} of a step is waiting for gradients"
    if config.strategy != "horovod":  # which does not tell when each of them was there
        evidence += f", another {words.percent(case.shares['overlap'])} travels behind backward"
    if facts:
        evidence += f"; {words.count(facts.parameters)} parameters by {facts.backend}"
    fewer = "a larger train.batch_size, or train.accumulate: fewer all-reduces"
    if config.strategy == "allreduce":
        fewer = f'strategy = "ddp", which sends while backward computes; {fewer}'
    elif config.strategy == "ddp" and config.ddp.comm_hook == "none":
        fewer += '; ddp.comm_hook = "fp16_compress" sends half the bytes'
    elif config.strategy == "horovod" and config.horovod.compression == "none":
        fewer += '; horovod.compression = "fp16" sends half the bytes'
    return Diagnosis(
        kind="communication",
        sentence="communication-bound: the ranks wait for gradients",
        evidence=evidence,
        advice=fewer,
    )


def _compute(case: _Case) -> Diagnosis | None:
    parts = {name: case.shares[name] for name in ("forward", "backward", "optimizer")}
    if sum(parts.values()) < MOSTLY:
        return None
    told = ", ".join(f"{name} {words.percent(share)}" for name, share in parts.items())
    return Diagnosis(
        kind="compute",
        sentence="compute-bound: the devices have the say",
        evidence=f"of a step {told}",
        advice=_computing(case),
    )


def _computing(case: _Case) -> str:
    plan, config = case.state.plan, case.record.config
    if plan is None or plan.devices[0].kind != "cuda":
        return "more cores, a GPU, or a smaller model"
    if plan.precision == "fp32":
        return 'precision = "bf16", or "tf32"'
    return "more GPUs" if config.train.compile else "train.compile = true, or more GPUs"


def _nothing(case: _Case) -> Diagnosis:
    told = (f"{name} {words.percent(case.shares[name])}" for name in (*PHASES, OTHER))
    return Diagnosis(
        kind="nothing", sentence="nothing stands out", evidence=f"of a step {', '.join(told)}"
    )


_ORDER: tuple[Callable[[_Case], Diagnosis | None], ...] = (
    _near_limit,
    _creeps,
    _late,
    _drifts,
    _input,
    _communication,
    _compute,
    _nothing,
)


def _cores(state: RunState) -> int | None:
    cores: int | None = (state.provenance.get("host") or {}).get("threads")
    return cores


def _busy(record: Record) -> float | None:
    """Percent of the host's cores, over the whole run."""
    totals = record.totals(HOST).get(0)
    return totals["cpu_sum"] / totals["cpu_n"] if totals and totals["cpu_n"] else None
