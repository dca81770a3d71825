"""What a run came to once it was warm: rate, shares of the step, memory, utilisation, energy."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan
from typing import Any

import msgspec

from runners.events import OTHER, PHASES
from runners.record import Record
from runners.rollup import Curve
from runners.series import GPU, HOST, PROCS, STEPS, rate_of_all

_SUMS = ("samples", "seconds", *PHASES, "overlap")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of all steps after some; None or empty where nothing was measured.

    `rate` is samples/s of the run, `samples` their number, `seconds` of the rank that took longest,
    `phases` shares of the step with "other", `overlap` the share in which communication was hidden.
    Memory is bytes at its peak, of all ranks together and
    of the fullest device; `cpu` and `gpu` are percent, of all cores that ranks used and of a
    device's mean, `others` the cores that were busy meanwhile with what is no rank of the run.
    """

    rate: float | None
    samples: int
    seconds: float
    phases: dict[str, float]
    overlap: float | None
    host_memory: float | None
    device_memory: float | None
    cpu: float | None
    gpu: float | None
    joules_per_sample: float | None
    others: float | None


def had_company(others: float | None, cores: int) -> bool:
    """Whether what else ran on so many cores bears on the figures."""
    return others is not None and others >= max(0.5, 0.1 * cores)


def cores_of(provenance: dict[str, Any]) -> int:
    """Of the machine; 0 where that is not known."""
    return int((provenance.get("host") or {}).get("threads") or 0)


def figures(record: Record, after_step: int = 0) -> Figures:
    """Figures of the steps after one that ends a window (0: all)."""
    curves = _curves(record, after_step)
    sums = [{name: _sum(curve[name]) for name in _SUMS} for curve in curves]
    samples, seconds = sum(each["samples"] for each in sums), sum(each["seconds"] for each in sums)
    rates = (each["samples"] / each["seconds"] if each["seconds"] else None for each in sums)
    phases = (
        {name: sum(each[name] for each in sums) / seconds for name in PHASES} if seconds else {}
    )
    if phases:
        phases[OTHER] = max(0.0, 1 - sum(phases.values()))
    # Samples are of times: those of older attempts may be of other devices, and of steps undone.
    lately = _curves(record, max([after_step, *(one.step for one in record.attempts()[-1:])]))
    begin, end = _span(lately)
    done = sum(_sum(curve["samples"]) for curve in lately)
    usage = [
        record.curve(PROCS, rank, columns=("cpu", "rss_max"), axis="time", start=begin, end=end)
        for rank in record.keys(PROCS)
    ]
    gpus = [
        record.curve(
            GPU,
            gpu,
            columns=("utilisation", "memory_used_max", "energy"),
            axis="time",
            start=begin,
            end=end,
        )
        for gpu in record.keys(GPU)
    ]
    watts, cpu = _added(_watts(gpu) for gpu in gpus), _added(_mean(rank["cpu"]) for rank in usage)
    return Figures(
        rate=rate_of_all(rates),
        samples=round(samples),
        seconds=max((each["seconds"] for each in sums), default=0.0),
        phases=phases,
        overlap=sum(each["overlap"] for each in sums) / seconds if seconds else None,
        host_memory=_added(_most(rank["rss_max"]) for rank in usage),
        device_memory=max(
            filter(None, (_most(gpu["memory_used_max"]) for gpu in gpus)), default=None
        ),
        cpu=cpu,
        gpu=_mean(mean for gpu in gpus if (mean := _mean(gpu["utilisation"])) is not None),
        joules_per_sample=watts * (end - begin) / done if watts and done else None,
        others=_others(record, begin, end, cpu),
    )


def _curves(record: Record, after_step: int) -> list[Curve]:
    return [
        record.curve(STEPS, rank, columns=_SUMS, axis="step", start=after_step + 1, points=64)
        for rank in record.keys(STEPS)
    ]


def _others(record: Record, begin: float, end: float, own: float | None) -> float | None:
    host = record.curve(HOST, 0, columns=("cpu",), axis="time", start=begin, end=end, points=64)
    busy, cores = _mean(host["cpu"]) if len(host) else None, cores_of(record.state.provenance)
    return None if own is None or busy is None or not cores else max(0.0, busy * cores - own) / 100


def _span(curves: list[Curve]) -> tuple[float, float]:
    """Unix times between which the steps were done."""
    there = [curve for curve in curves if len(curve)]
    begins = [curve["time"][0] - curve["seconds"][0] for curve in there]
    return min(begins, default=0.0), max((curve["time"][-1] for curve in there), default=0.0)


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)]


def _sum(values: Iterable[float]) -> float:
    return sum(_known(values))


def _mean(values: Iterable[float]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _most(values: Iterable[float]) -> float | None:
    return max(_known(values), default=None)


def _watts(gpu: Curve) -> float | None:
    """How fast its counter rose, which is read within the time of the steps, not at its ends."""
    known = [pair for pair in zip(gpu["time"], gpu["energy"], strict=True) if not isnan(pair[1])]
    if len(known) < 2:
        return None
    (begin, first), (end, last) = known[0], known[-1]
    return (last - first) / (end - begin) if last >= first and end > begin else None


def _added(values: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known, for a part is not the whole."""
    return rate_of_all(values)
