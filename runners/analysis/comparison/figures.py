"""The figures of a run after its warm-up: rate, phases, memory, utilisation, energy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isnan
from typing import Any, NamedTuple

import msgspec

from distrain.runners.analysis.comparison.fairness import OPTIMIZER_STEPS
from distrain.runners.protocol.events import OTHER, PHASES
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import measured_shares
from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.run_curve import add_rates
from distrain.runners.records.timeseries.series import GPU, HOST, PROCS, STEPS

_SUMS = ("steps", "samples", "seconds", *PHASES, "overlap")
_GPU_COLUMNS = ("utilisation", "memory_used_max", "energy")
_POINTS = 64


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the steps in a range; None or empty if not measured.

    `rate`: samples/s of all ranks; None if a script does not report its samples.
    `step_rate`: steps/s of the run, the mean of its ranks. `steps`: of the rank with the fewest.
    `samples_per_step`: of all ranks; None as the rate.
    `seconds`: of the slowest rank.
    `phases`: shares of the step, with "other".
    `overlap`: communication that overlaps with backward, as a share of the step.
    `host_memory`: peak in bytes, all ranks together. `device_memory`: peak of the fullest device.
    `cpu`: percent of one core, all ranks together. `gpu`: percent, mean of the devices.
    `other_cores`: cores that were busy with other programs, of a run on the supervisor's host.
    """

    rate: float | None
    step_rate: float | None
    steps: int
    samples_per_step: float | None
    seconds: float
    phases: dict[str, float]
    overlap: float | None
    host_memory: float | None
    device_memory: float | None
    cpu: float | None
    gpu: float | None
    joules_per_sample: float | None
    other_cores: float | None


def compute_figures(record: Record, after_step: int = 0, until_step: int | None = None) -> Figures:
    """Return the figures of the steps after `after_step`, at most until `until_step`.

    Both must be the end of a window of rank 0.
    """
    has_samples = reports_samples(record)
    curves = _step_curves(record, after_step, until_step)
    sums = [{name: _sum(curve[name]) for name in _SUMS} for curve in curves]
    seconds = sum(each["seconds"] for each in sums)
    phases: dict[str, float] = {}
    if seconds:
        phases = {name: sum(each[name] for each in sums) / seconds for name in PHASES}
        phases[OTHER] = max(0.0, 1 - sum(phases.values()))
    overlap = sum(each["overlap"] for each in sums) / seconds if seconds else None
    if record.config.is_script:
        phases = measured_shares(phases)
        overlap = overlap or None
    # What is sampled by time comes from the last attempt alone: earlier ones may have had other
    # devices, and steps that were undone.
    attempts = record.attempts()
    attempt_start = attempts[-1].step if attempts else 0
    last_curves = _step_curves(record, max(after_step, attempt_start), until_step)
    sampled = _read_samples(record, *_time_range(last_curves))
    joules_per_sample = None
    if has_samples and (samples := sum(_sum(curve["samples"]) for curve in last_curves)):
        joules_per_sample = None if sampled.joules is None else sampled.joules / samples
    return Figures(
        rate=add_rates(_ratios(sums, "samples", "seconds")) if has_samples else None,
        step_rate=sum(each["steps"] for each in sums) / seconds if seconds else None,
        steps=round(min((each["steps"] for each in sums), default=0)),
        samples_per_step=add_rates(_ratios(sums, "samples", "steps")) if has_samples else None,
        seconds=max((each["seconds"] for each in sums), default=0.0),
        phases=phases,
        overlap=overlap,
        host_memory=sampled.host_memory,
        device_memory=sampled.device_memory,
        cpu=sampled.cpu,
        gpu=sampled.gpu,
        joules_per_sample=joules_per_sample,
        other_cores=sampled.other_cores,
    )


class _Sampled(NamedTuple):
    """What was sampled in a range of time; `joules` of all GPUs, the rest as in `Figures`."""

    host_memory: float | None
    device_memory: float | None
    cpu: float | None
    gpu: float | None
    joules: float | None
    other_cores: float | None


def _read_samples(record: Record, start: float, end: float) -> _Sampled:
    processes = [
        record.curve(PROCS, rank, columns=("cpu", "rss_max"), axis="time", start=start, end=end)
        for rank in record.keys(PROCS)
    ]
    gpus = [
        record.curve(GPU, gpu, columns=_GPU_COLUMNS, axis="time", start=start, end=end)
        for gpu in record.keys(GPU)
    ]
    device_peaks = [_max(gpu["memory_used_max"]) for gpu in gpus]
    utilisations = [_mean(gpu["utilisation"]) for gpu in gpus]
    watts = _total(_watts(gpu) for gpu in gpus)
    cpu = _total(_mean(rank["cpu"]) for rank in processes)
    return _Sampled(
        host_memory=_total(_max(rank["rss_max"]) for rank in processes),
        device_memory=max((peak for peak in device_peaks if peak), default=None),
        cpu=cpu,
        gpu=_mean(mean for mean in utilisations if mean is not None),
        joules=watts * (end - start) if watts else None,
        other_cores=_other_cores(record, start, end, cpu),
    )


def reports_samples(record: Record) -> bool:
    """Return whether the samples of a run are known: a script may not report them."""
    return not record.config.is_script or bool(record.script_settings().sources.get("samples"))


def reports_steps(record: Record) -> bool:
    """Return whether steps of a run are known: a script may report none, or fail before."""
    return not record.config.is_script or bool(record.script_settings().sources.get("steps"))


def step_kind(record: Record) -> str:
    """Return what counts as a step: of a script for example the batches of `distrain.track`."""
    source = record.script_settings().sources.get("steps", "") if record.config.is_script else ""
    return source.partition(" of ")[0] or OPTIMIZER_STEPS


def declared_by(record: Record) -> dict[str, Any]:
    """Return what a script declares of itself, or what a task has in place of config parts."""
    if record.config.is_script:
        return dict(record.script_settings().config)
    facts = record.state.facts
    return {"model": facts.model, "data": facts.data} if facts else {}


def is_cpu_shared(other_cores: float | None, cores: int) -> bool:
    """Return whether other programs used enough of the host's cores to affect the figures."""
    return other_cores is not None and other_cores >= max(0.5, 0.1 * cores)


def core_count(provenance: dict[str, Any]) -> int:
    """Return the number of the host's cores; 0 if it is not known."""
    return int((provenance.get("host") or {}).get("threads") or 0)


def _step_curves(record: Record, after_step: int, until_step: int | None) -> list[Curve]:
    return [
        record.curve(
            STEPS,
            rank,
            columns=_SUMS,
            axis="step",
            start=after_step + 1,
            end=until_step,
            points=_POINTS,
        )
        for rank in record.keys(STEPS)
    ]


def _ratios(sums: Iterable[Mapping[str, float]], name: str, divisor: str) -> Iterable[float | None]:
    """Return the ratio of two sums of each rank."""
    return (each[name] / each[divisor] if each[divisor] else None for each in sums)


def _time_range(curves: list[Curve]) -> tuple[float, float]:
    """Return the Unix times between which the steps of these curves were done."""
    filled = [curve for curve in curves if len(curve)]
    start = min((curve["time"][0] - curve["seconds"][0] for curve in filled), default=0.0)
    end = max((curve["time"][-1] for curve in filled), default=0.0)
    return start, end


def _other_cores(
    record: Record, start: float, end: float, own_percent: float | None
) -> float | None:
    host = record.curve(
        HOST, 0, columns=("cpu",), axis="time", start=start, end=end, points=_POINTS
    )
    busy_percent = _mean(host["cpu"]) if len(host) else None
    cores = core_count(record.state.provenance)
    plan = record.state.plan
    # The provenance is of the supervisor's host, the samples are of the first one that trains.
    is_alone_here = plan is not None and not (plan.scheduled or plan.spread)
    if own_percent is None or busy_percent is None or not (cores and is_alone_here):
        return None
    return max(0.0, busy_percent * cores - own_percent) / 100


def _watts(gpu: Curve) -> float | None:
    """Return the mean power, from the first and last reading of the GPU's energy counter (J)."""
    readings = [
        (time, energy)
        for time, energy in zip(gpu["time"], gpu["energy"], strict=True)
        if not isnan(energy)
    ]
    if len(readings) < 2:
        return None
    (start, first), (end, last) = readings[0], readings[-1]
    return (last - first) / (end - start) if last >= first and end > start else None


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)]


def _sum(values: Iterable[float]) -> float:
    return sum(_known(values))


def _mean(values: Iterable[float]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _max(values: Iterable[float]) -> float | None:
    return max(_known(values), default=None)


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if one value is not known, because a part is not the whole."""
    return add_rates(values)
