"""Which series a record has, and how the ranks' curves add up to the run's."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from math import isnan, nan
from typing import Any

from runners.events import PHASES, GpuSample, HostSample, RankSample, Window
from runners.rollup import Column, Curve, Series


def _spread(name: str, raw: str = "") -> list[Column]:
    """A quantity's least and greatest value."""
    return [Column(f"{name}_min", "min", raw or name), Column(f"{name}_max", "max", raw or name)]


def _measured(*names: str) -> tuple[list[Column], dict[str, tuple[str, str]]]:
    """Gauges: each gives `name` (its mean), `name_min` and `name_max`."""
    columns = []
    for name in names:
        columns += [
            Column(f"{name}_sum", "sum", name),
            Column(f"{name}_n", "sum", f"{name} NOTNULL"),
        ]
        columns += _spread(name)
    return columns, {name: (f"{name}_sum", f"{name}_n") for name in names}


# `loss` and `samples_per_s` are means weighted by samples and seconds; `<phase>_per_step` are
# seconds. Warm-up counts as work done but not as throughput. A loss that was not finite is
# missing: its samples are in `samples`, not in `loss_samples`.
STEPS = Series(
    "steps",
    Window,
    key="rank",
    axes=("step", "time", "epoch"),
    columns=[
        *(Column(name) for name in ("steps", "samples", "seconds", *PHASES, "skipped", "loss_sum")),
        Column("loss_samples", "sum", "CASE WHEN loss_sum NOTNULL THEN samples ELSE 0 END"),
        Column("loss_min", "min"),
        Column("loss_max", "max"),
        Column("warmup_steps", "sum", "warmup * steps"),
        Column("timed_samples", "sum", "(1 - warmup) * samples"),
        Column("timed_seconds", "sum", "(1 - warmup) * seconds"),
        *_spread("samples_per_s", "CASE WHEN NOT warmup THEN samples / seconds END"),
        Column("lr", "last"),
        *_spread("lr"),
        *_spread("seconds_per_step", "seconds / steps"),
        *(column for name in PHASES for column in _spread(f"{name}_per_step", f"{name} / steps")),
    ],
    ratios={
        "loss": ("loss_sum", "loss_samples"),
        "samples_per_s": ("timed_samples", "timed_seconds"),
        **{f"{name}_per_step": (name, "steps") for name in ("seconds", *PHASES)},
    },
)

_columns, _ratios = _measured(
    "utilisation", "memory_used", "power", "temperature", "sm_clock", "memory_clock"
)
GPU = Series(
    "gpu",
    GpuSample,
    key="gpu",
    axes=("time",),
    columns=[*_columns, Column("memory_total", "last"), Column("energy", "last")],
    ratios=_ratios,
)

_columns, _ratios = _measured("cpu", "memory_used", "load")
HOST = Series(
    "host",
    HostSample,
    key="host",
    axes=("time",),
    columns=[*_columns, Column("memory_total", "last")],
    ratios=_ratios,
)

_columns, _ratios = _measured("cpu", "rss", "processes")
PROCS = Series("procs", RankSample, key="rank", axes=("time",), columns=_columns, ratios=_ratios)

SERIES: tuple[Series[Any], ...] = (STEPS, GPU, HOST, PROCS)

# What `over_ranks` needs of each rank, and what it gives.
_SUMS = ("samples", "loss_sum", "loss_samples", "timed_samples", "timed_seconds")
RANK_COLUMNS = ("steps", "lr", "loss_min", "loss_max", *_SUMS)
RUN_COLUMNS = (*STEPS.axes, "lr", "samples", "loss", "loss_min", "loss_max", "samples_per_s")


def over_ranks(curves: Iterable[Curve]) -> Curve:
    """One curve for the run (RUN_COLUMNS) of its ranks' curves (with RANK_COLUMNS).

    It has the points of the rank with the fewest, as far as every rank has reported. A row of
    a rank that lies across two points is shared out by steps; at each point `loss` is
    Σ loss_sum / Σ samples, and `samples_per_s` the sum of the ranks' own rates.
    """
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return Curve({name: array("d") for name in RUN_COLUMNS})
    guide = min(curves, key=len)
    last = min(curve["step"][-1] for curve in curves)
    points = bisect_left(guide["step"], last) + 1
    edges = [*guide["step"][: points - 1], last]
    columns = {name: guide[name][:points] for name in ("time", "epoch", "lr")}
    columns["step"] = array("d", edges)
    per_rank = [_on_edges(curve, edges) for curve in curves]
    added = {name: _across(sum, per_rank, name) for name in ("samples", "loss_sum", "loss_samples")}
    columns["samples"] = added["samples"]
    columns["loss"] = _divided(added["loss_sum"], added["loss_samples"])
    columns["loss_min"] = _across(min, per_rank, "loss_min")
    columns["loss_max"] = _across(max, per_rank, "loss_max")
    for rank in per_rank:
        rank["samples_per_s"] = _divided(rank["timed_samples"], rank["timed_seconds"])
    # NaN spreads: while one rank still warms up, the run has no rate.
    columns["samples_per_s"] = _across(sum, per_rank, "samples_per_s")
    return Curve(columns, guide.stride)


def _on_edges(curve: Curve, edges: list[float]) -> dict[str, Sequence[float]]:
    """A rank's sums, least and greatest loss between each edge (in steps) and the one before."""
    steps, ends = curve["steps"], curve["step"]
    rows, parts = [], []
    for edge in edges:
        row = bisect_left(ends, edge)
        begin = ends[row] - steps[row]
        rows.append(row)
        parts.append(max(0.0, (edge - begin) / steps[row]) if steps[row] else 1.0)
    found: dict[str, Sequence[float]] = {}
    for name in _SUMS:
        values = [0.0 if isnan(value) else value for value in curve[name]]
        before = list(accumulate(values, initial=0.0))
        until = [before[row] + part * values[row] for row, part in zip(rows, parts, strict=True)]
        found[name] = [now - then for then, now in pairwise([0.0, *until])]
    # A row that ended at an edge has no part in what comes after it.
    firsts = [0, *(row + (part >= 1.0) for row, part in zip(rows, parts, strict=True))]
    spans = [(first, row + 1) for first, row in zip(firsts, rows, strict=False)]
    for name, pick in (("loss_min", min), ("loss_max", max)):
        column = curve[name]
        found[name] = [_pick(pick, column[first:end]) for first, end in spans]
    return found


def _pick(pick: Callable[..., float], values: Iterable[float]) -> float:
    return pick((value for value in values if not isnan(value)), default=nan)


def _across(
    add: Callable[[Iterable[float]], float], ranks: list[dict[str, Sequence[float]]], name: str
) -> array[float]:
    together = zip(*(rank[name] for rank in ranks), strict=True)
    if add is sum:
        return array("d", map(add, together))
    return array("d", [_pick(add, values) for values in together])


def _divided(above: Iterable[float], below: Iterable[float]) -> array[float]:
    return array("d", [a / b if b else nan for a, b in zip(above, below, strict=True)])
