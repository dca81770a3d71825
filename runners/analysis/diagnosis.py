"""What limits the speed of a run, in one sentence, with evidence and advice.

The first finding counts: what may end the run, then a rank that all others wait for, then changes
over the run, then where the time of a step goes. All figures come from the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from distrain.runners import formatting
from distrain.runners.analysis.cores import busy_percent, core_count
from distrain.runners.analysis.stragglers import (
    Straggler,
    find_straggler_among,
    measure_paces,
    other_seconds,
    read_recent_steps,
    times_waits,
)
from distrain.runners.analysis.trends import find_drift, find_memory_growth
from distrain.runners.protocol.events import OTHER, PHASES
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import measured_shares
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.series import GPU, HOST
from distrain.runners.system.peak_flops import peak_flops

DiagnosisKind = Literal[
    "failed",
    "stalled",
    "unknown",
    "memory",
    "creeping",
    "straggler",
    "drifting",
    "input",
    "communication",
    "compute",
    "unmeasured",
    "nothing",
]
NEARLY_FULL = 0.95  # share of the memory
MIN_WAIT = 0.25  # share of a step; input-bound, communication-bound
MIN_COMPUTE = 0.65  # share of a step; compute-bound
MIN_OTHER = 0.5  # share of a step that is in none of the phases
CORES_FREE = 85.0  # percent of the host's cores; below it, some are free


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What limits a run.

    `evidence`: the figures behind the sentence; may be empty.
    `advice`: what to change or to check; may be empty.
    `straggler`: set whenever there is one, whatever the kind.
    """

    kind: DiagnosisKind
    sentence: str
    evidence: str = ""
    advice: str = ""
    straggler: Straggler | None = None


TOO_FEW_STEPS = Diagnosis(kind="unknown", sentence="too few steps to tell where the time goes")
_SCRIPT_ALONE = ("nothing", "unmeasured")  # of a script that reports no phases
UNREPORTED = Diagnosis(kind="unknown", sentence="the script does not report where its time goes")
# In place of advice that names keys of a preset.
_SCRIPT_ADVICE = {
    "memory": "use smaller batches and accumulate gradients, or fewer ranks and loader processes "
    "there",
    "input": "load data in more processes (num_workers of the DataLoader), or reduce the work per "
    "sample",
    "communication": "use larger batches or accumulate gradients (no_sync), for fewer all-reduces",
    "compute": "use mixed precision (torch.autocast), torch.compile, or more devices",
    "unmeasured": "look for work between the batches and steps that are observed, or name phases "
    'by `with distrain.phase("forward"):`',
}


class _Findings(NamedTuple):
    """`shares`: of all ranks' time, by phase, "other" and "overlap"."""

    record: Record
    state: RunState
    shares: dict[str, float]
    straggler: Straggler | None


def diagnose(record: Record, after_step: int = 0, state: RunState | None = None) -> Diagnosis:
    """Return what limits a run; `state` is its state, if it was read already.

    Of a live run the last seconds count (for memory and drift the whole run), of a run that has
    ended the steps after `after_step`. The cost does not depend on the length of the run.
    """
    state = state or record.state
    if state.error is not None and not state.live:
        sentence = formatting.single_line(state.reason or state.error.message)
        return Diagnosis(kind="failed", sentence=sentence)
    if state.current_stall:
        return Diagnosis(
            kind="stalled",
            sentence=state.current_stall.describe(time.time()),
            advice=f"`distrain stacks {record.id}` shows what each rank is doing",
        )
    curves = read_recent_steps(record, after_step)
    paces = measure_paces(record, curves)
    shares = shares_of_time(curves)
    is_script = record.config.is_script
    if not paces:
        is_unreported = is_script and not record.script_settings().sources.get("steps")
        return UNREPORTED if is_unreported else TOO_FEW_STEPS
    findings = _Findings(
        record, state, shares, find_straggler_among(paces) if times_waits(record) else None
    )
    diagnosis = next(found for check in _CHECKS if (found := check(findings)) is not None)
    if is_script and diagnosis.kind in _SCRIPT_ALONE and not measured_shares(shares):
        diagnosis = UNREPORTED
    if is_script and diagnosis.kind in _SCRIPT_ADVICE:
        advice = _SCRIPT_ADVICE[diagnosis.kind]
        diagnosis = msgspec.structs.replace(diagnosis, advice=advice)
    return msgspec.structs.replace(diagnosis, straggler=findings.straggler)


def shares_of_time(curves: Mapping[int, Curve]) -> dict[str, float]:
    """Return shares of all ranks' time: phases and "other", which add up to 1, and "overlap"."""
    total = sum(sum(curve["seconds"]) for curve in curves.values())
    seconds = {
        name: sum(sum(curve[name]) for curve in curves.values()) for name in (*PHASES, "overlap")
    }
    seconds[OTHER] = sum(
        other_seconds(curve, row) for curve in curves.values() for row in range(len(curve))
    )
    return {name: part / total if total else 0.0 for name, part in seconds.items()}


# --- what may end the run ------------------------------------------------------------------------


def _check_memory(findings: _Findings) -> Diagnosis | None:
    state = findings.state
    record = findings.record
    for series, name_of in ((GPU, state.gpu_name), (HOST, state.host_name)):
        for key, sample in record.latest(series).items():
            used, total = sample.memory_used, sample.memory_total
            kind = "in use"
            if not state.live:
                used = record.totals(series)[key]["memory_used_max"]
                kind = "in use at the peak"
            if used and total and used >= NEARLY_FULL * total:
                return Diagnosis(
                    kind="memory",
                    sentence=f"the memory of {name_of(key)} is nearly full",
                    evidence=f"{formatting.size(used)} of {formatting.size(total)} {kind}",
                    advice="use a smaller train.batch_size with train.accumulate, or fewer ranks "
                    "and loader processes there",
                )
    return None


def _check_memory_growth(findings: _Findings) -> Diagnosis | None:
    growth = find_memory_growth(findings.record)
    if growth is None:
        return None
    rate = formatting.size(1000 * growth.per_step)
    evidence = f"from {formatting.size(growth.first)} to {formatting.size(growth.last)}"
    if growth.steps_until_full is not None:
        evidence += f"; full in {formatting.count(growth.steps_until_full)} steps at this rate"
    return Diagnosis(
        kind="creeping",
        sentence=f"the memory of {growth.owner} grows by {rate} per 1,000 steps",
        evidence=evidence,
        advice="check what outlives a step: losses kept as tensors, a cache in the data set; "
        "loader processes copy the Python objects that they access, but share arrays",
    )


# --- what the ranks wait for, and what changes ---------------------------------------------------

_STRAGGLER_ADVICE = {
    "data": "check what rank {} reads from: disk, loader processes, other load on its cores",
    "forward": "check the device of rank {}: clock rate, temperature, other programs on it",
    "backward": "check the device of rank {}: clock rate, temperature, other programs on it",
    "optimizer": "check what only rank {} does around the optimizer step",
    OTHER: "check what only rank {} does between steps: hooks, logging",
}


def _check_straggler(findings: _Findings) -> Diagnosis | None:
    straggler = findings.straggler
    if straggler is None:
        return None
    rank = straggler.rank
    phase = straggler.phase
    what = "the time between its phases" if phase == OTHER else f"its {phase} phase"
    return Diagnosis(
        kind="straggler",
        sentence=f"the other ranks wait for rank {rank}: {what} is "
        f"{formatting.percent(straggler.share)} of a step longer",
        evidence=f"{formatting.milliseconds(straggler.seconds)} longer per step; wait for "
        f"communication per step: other ranks {formatting.milliseconds(straggler.others_wait)}, "
        f"rank {rank} {formatting.milliseconds(straggler.own_wait)}",
        advice=_STRAGGLER_ADVICE[phase].format(rank),
    )


_DRIFT_ADVICE = {
    "data": "check what the data set caches or reopens, and the disk that it is on",
    "comm": "check other traffic on the network, and the clock rate of the slowest rank",
    "optimizer": "check what grows with each step in the optimizer and its hooks",
    OTHER: "check what grows with each step between the phases: hooks, logging",
}


def _check_drift(findings: _Findings) -> Diagnosis | None:
    drift = find_drift(findings.record)
    if drift is None:
        return None
    change = drift.last / drift.first - 1 if drift.first > 0 else 0.0
    direction = "shorter"
    advice = ""
    if change > 0:
        direction = "longer"
        advice = _DRIFT_ADVICE.get(
            drift.phase,
            "check clock rates and temperatures of the devices, and other programs on them",
        )
    where = "between the phases" if drift.phase == OTHER else f"in {drift.phase}"
    return Diagnosis(
        kind="drifting",
        sentence=f"steps have become {formatting.percent(abs(change))} {direction} over the run",
        evidence=f"from {formatting.milliseconds(drift.first)} to "
        f"{formatting.milliseconds(drift.last)} per step; most of the change is {where}",
        advice=advice,
    )


# --- where the time goes -------------------------------------------------------------------------


def _check_input(findings: _Findings) -> Diagnosis | None:
    data = findings.shares["data"]
    workers = findings.record.config.data.workers
    if data < MIN_WAIT or data < findings.shares["comm"]:
        return None
    cores = core_count(findings.state)
    busy = busy_percent(findings.record, findings.state)
    evidence = f"the ranks wait for data {formatting.percent(data)} of a step"
    if not findings.record.config.is_script:
        evidence += f"; loader processes: {workers}"
    if cores:
        evidence += f"; {formatting.plural(cores, 'core')}"
        evidence += f", {busy:.0f} % busy" if busy is not None else ""
    elif busy is not None:
        evidence += f"; the cores are {busy:.0f} % busy"
    return Diagnosis(
        kind="input",
        sentence="input-bound: the ranks wait for data",
        evidence=evidence,
        advice=_input_advice(findings, workers, cores, busy),
    )


def _input_advice(findings: _Findings, workers: int, cores: int | None, busy: float | None) -> str:
    plan = findings.state.plan
    ranks = plan.world_size if plan else 1
    if not workers:
        return f"set data.workers = {ranks} or more, to load data while the ranks compute"
    has_free_cores = busy is None or busy < CORES_FREE
    if has_free_cores and (cores is None or workers < cores):
        more = 2 * workers if cores is None else min(cores, 2 * workers)
        prefetch = 2 * findings.record.config.data.prefetch
        return f"set data.workers = {more} or data.prefetch = {prefetch}"
    return "reduce the work per sample: smaller files, decoding in advance, fewer augmentations"


def _check_communication(findings: _Findings) -> Diagnosis | None:
    comm = findings.shares["comm"]
    if comm < MIN_WAIT:
        return None
    facts = findings.state.facts
    config = findings.record.config
    evidence = f"the ranks wait for gradients {formatting.percent(comm)} of a step"
    overlap = findings.shares["overlap"]
    if overlap >= 0.005:  # Horovod does not report when each gradient was ready
        share = formatting.percent(overlap)
        evidence += f"; another {share} of communication overlaps with backward"
    if facts:
        parameters = formatting.count(facts.parameters)
        evidence += f"; {parameters} parameters, backend {facts.backend}"
    advice = "increase train.batch_size for fewer all-reduces"
    advice += " (and train.accumulate, if it does not fit in memory)"
    if config.strategy == "allreduce":
        advice = f'set strategy = "ddp", which sends gradients during backward, or {advice}'
    elif config.strategy == "ddp" and config.ddp.comm_hook == "none":
        advice += ', or set ddp.comm_hook = "fp16_compress" to send half the bytes'
    elif config.strategy == "horovod" and config.horovod.compression == "none":
        advice += ', or set horovod.compression = "fp16" to send half the bytes'
    return Diagnosis(
        kind="communication",
        sentence="communication-bound: the ranks wait for gradients",
        evidence=evidence,
        advice=advice,
    )


def _check_compute(findings: _Findings) -> Diagnosis | None:
    phases = ("forward", "backward", "optimizer")
    if sum(findings.shares[name] for name in phases) < MIN_COMPUTE:
        return None
    sentence = "compute-bound: the devices set the pace"
    plan = findings.state.plan
    is_alone = plan is None or plan.world_size == 1
    if findings.record.config.is_script and not is_alone and not findings.shares["comm"]:
        sentence = (
            "compute-bound: most of a step is computation, including any wait for other ranks"
        )
    return Diagnosis(
        kind="compute",
        sentence=sentence,
        evidence=f"of a step: {_format_shares(findings, phases)}",
        advice=_compute_advice(findings),
    )


def _compute_advice(findings: _Findings) -> str:
    plan = findings.state.plan
    config = findings.record.config
    if plan is None or plan.devices[0].kind != "cuda":
        return "use more cores, a GPU or a smaller model"
    if plan.precision == "fp32":
        if peak_flops(plan.devices, "fp32") and not peak_flops(plan.devices, "tf32"):
            return 'set precision = "fp16"'  # a GPU that has neither tf32 nor bf16
        return 'set precision = "bf16" or "tf32"'
    if config.train.compile or config.strategy == "dp":  # which torch.compile cannot follow
        return "use more GPUs"
    return "set train.compile = true, or use more GPUs"


def _check_unmeasured(findings: _Findings) -> Diagnosis | None:
    if findings.shares[OTHER] < MIN_OTHER:
        return None
    return Diagnosis(
        kind="unmeasured",
        sentence="most of a step is spent outside the measured phases",
        evidence=f"of a step: {_format_shares(findings, (*PHASES, OTHER))}",
        advice="profile what runs between the phases, e.g. logging and hooks",
    )


def _report_no_bottleneck(findings: _Findings) -> Diagnosis:
    return Diagnosis(
        kind="nothing",
        sentence="no bottleneck stands out",
        evidence=f"of a step: {_format_shares(findings, (*PHASES, OTHER))}",
    )


_CHECKS: tuple[Callable[[_Findings], Diagnosis | None], ...] = (
    _check_memory,
    _check_memory_growth,
    _check_straggler,
    _check_drift,
    _check_input,
    _check_communication,
    _check_compute,
    _check_unmeasured,
    _report_no_bottleneck,
)


def _format_shares(findings: _Findings, phases: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {formatting.percent(findings.shares[name])}" for name in phases)
