"""Which series a record has, and how the ranks' curves add up to the run's."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import inf, isfinite, isnan, nan
from operator import add, mul, sub
from typing import Any

from runners.events import BESIDE, PHASES, GpuSample, HostSample, RankSample, Window
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
# seconds, and only their greatest is kept beside the mean: every column costs each window.
# Warm-up counts as work done but not as throughput. A loss that was not finite is missing: its
# samples are in `samples`, not in `loss_samples`.
STEPS = Series(
    "steps",
    Window,
    key="rank",
    axes=("step", "time", "epoch"),
    columns=[
        *map(Column, ("steps", "samples", "seconds", *PHASES, *BESIDE, "skipped", "loss_sum")),
        Column("loss_samples", "sum", "CASE WHEN loss_sum NOTNULL THEN samples ELSE 0 END"),
        Column("loss_min", "min"),
        Column("loss_max", "max"),
        Column("timed_samples", "sum", "(1 - warmup) * samples"),
        Column("timed_seconds", "sum", "(1 - warmup) * seconds"),
        *_spread("samples_per_s", "CASE WHEN NOT warmup THEN samples / seconds END"),
        Column("lr", "last"),
        *(Column(f"{name}_per_step_max", "max", f"{name} / steps") for name in PHASES),
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
_SPREAD = {"loss_min": inf, "loss_max": -inf}  # with what a missing value does not change
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
    per_rank = [_on_edges(curve, edges) for curve in curves]
    samples, loss_sum, loss_samples = (
        _across(sum, per_rank, name) for name in ("samples", "loss_sum", "loss_samples")
    )
    # NaN spreads: while one rank still warms up, the run has no rate.
    rates = [_divided(rank["timed_samples"], rank["timed_seconds"]) for rank in per_rank]
    columns |= {
        "step": array("d", edges),
        "samples": samples,
        "loss": _divided(loss_sum, loss_samples),
        "loss_min": _finite(_across(min, per_rank, "loss_min")),
        "loss_max": _finite(_across(max, per_rank, "loss_max")),
        "samples_per_s": array("d", map(sum, zip(*rates, strict=True))),
    }
    return Curve(columns, guide.stride)


def rate_of_all(rates: Iterable[float | None]) -> float | None:
    """The ranks' rates added up; None while one of them has none, for a part is not the run's."""
    known = list(rates)
    return None if not known or None in known else sum(rate for rate in known if rate is not None)


def _on_edges(curve: Curve, edges: list[float]) -> dict[str, Sequence[float]]:
    """A rank's sums, least and greatest loss between each edge (in steps) and the one before."""
    steps, ends = curve["steps"], curve["step"]
    if [*ends[: len(edges)]] == edges:  # in lockstep, as ranks are
        return {name: _kept(curve, name, len(edges)) for name in (*_SUMS, *_SPREAD)}
    # The row that each edge falls into, and the part of it that lies before the edge.
    rows = [bisect_left(ends, edge) for edge in edges]
    parts = [
        1.0 - min((ends[row] - edge) / steps[row], 1.0) if steps[row] else 1.0
        for row, edge in zip(rows, edges, strict=True)
    ]
    found: dict[str, Sequence[float]] = {}
    for name in _SUMS:
        values = _without_nan(curve[name], 0.0)
        before = list(accumulate(values, initial=0.0))
        begun = map(mul, parts, map(values.__getitem__, rows))
        until = list(map(add, map(before.__getitem__, rows), begun))
        found[name] = list(map(sub, until, [0.0, *until]))
    # A row that ended at an edge has no part in what comes after it.
    firsts = [0, *(row + (part >= 1.0) for row, part in zip(rows, parts, strict=True))]
    spans = [slice(first, row + 1) for first, row in zip(firsts, rows, strict=False)]
    low, high = (_without_nan(curve[name], missing) for name, missing in _SPREAD.items())
    found["loss_min"] = [min(low[span], default=inf) for span in spans]
    found["loss_max"] = [max(high[span], default=-inf) for span in spans]
    return found


def _kept(curve: Curve, name: str, points: int) -> Sequence[float]:
    return _without_nan(curve[name][:points], _SPREAD.get(name, 0.0))


def _across(
    how: Callable[[Iterable[float]], float], ranks: list[dict[str, Sequence[float]]], name: str
) -> array[float]:
    return array("d", map(how, zip(*(rank[name] for rank in ranks), strict=True)))


def _divided(above: Iterable[float], below: Iterable[float]) -> array[float]:
    return array("d", [a / b if b else nan for a, b in zip(above, below, strict=True)])


def _without_nan(values: array[float], instead: float) -> Sequence[float]:
    if not isnan(sum(values)):
        return values
    return [instead if isnan(value) else value for value in values]


def _finite(values: array[float]) -> array[float]:
    return array("d", [value if isfinite(value) else nan for value in values])
