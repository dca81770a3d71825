"""The series of a record: windows of steps, and samples of GPUs, hosts and rank processes."""

from __future__ import annotations

from typing import Any

import msgspec

from distrain.runners.protocol.events import (
    PHASES,
    WINDOW_SUMS,
    GpuSample,
    HostSample,
    RankSample,
    Window,
)
from distrain.runners.records.timeseries.rollup import RollupColumn, Series


def _min_and_max(name: str, raw: str = "") -> list[RollupColumn]:
    """Return columns for the minimum and maximum of a quantity."""
    return [
        RollupColumn(f"{name}_min", "min", raw or name),
        RollupColumn(f"{name}_max", "max", raw or name),
    ]


def _gauges(*names: str) -> tuple[list[RollupColumn], dict[str, tuple[str, str]]]:
    """Return columns and ratios of gauges: each gives `name` (the mean), its _min and _max."""
    columns = []
    for name in names:
        columns += [
            RollupColumn(f"{name}_sum", "sum", name),
            RollupColumn(f"{name}_n", "sum", f"{name} NOTNULL"),
        ]
        columns += _min_and_max(name)
    return columns, {name: (f"{name}_sum", f"{name}_n") for name in names}


LOSS_SAMPLES = "CASE WHEN loss_sum NOTNULL THEN coalesce(loss_weight, samples) ELSE 0 END"

# `loss` and `samples_per_s` are means weighted by samples and seconds; `<phase>_per_step` are
# seconds. Of these only the mean and the maximum are stored, as every column costs time with each
# window. Warm-up counts as work done but not as throughput. A loss that was not finite is missing:
# its samples are in `samples`, not in `loss_samples`, which has weights where batches have them.
STEPS = Series(
    "steps",
    Window,
    key="rank",
    axes=("step", "time", "epoch"),
    columns=[
        *map(RollupColumn, (*WINDOW_SUMS, "loss_sum")),
        RollupColumn("loss_samples", "sum", LOSS_SAMPLES),
        RollupColumn("loss_min", "min"),
        RollupColumn("loss_max", "max"),
        RollupColumn("timed_samples", "sum", "(1 - warmup) * samples"),
        RollupColumn("timed_seconds", "sum", "(1 - warmup) * seconds"),
        *_min_and_max("samples_per_s", "CASE WHEN NOT warmup THEN samples / seconds END"),
        RollupColumn("lr", "last"),
        *(RollupColumn(f"{name}_per_step_max", "max", f"{name} / steps") for name in PHASES),
    ],
    ratios={
        "loss": ("loss_sum", "loss_samples"),
        "samples_per_s": ("timed_samples", "timed_seconds"),
        **{f"{name}_per_step": (name, "steps") for name in ("seconds", *PHASES)},
    },
)


class LoggedRow(msgspec.Struct, frozen=True):
    """Values that a rank of a script has logged under one name: see LoggedStats.

    `curve` is a row of the table `curves`, which has the name and the rank.
    """

    time: float
    curve: int
    step: int
    n: int
    total: float | None
    low: float | None
    high: float | None
    newest: float | None


# `value` is the mean of the finite values; `newest` the last value, null if it is not finite.
LOGGED = Series(
    "logged",
    LoggedRow,
    key="curve",
    axes=("step", "time"),
    columns=[
        RollupColumn("total"),
        RollupColumn("finite", "sum", "CASE WHEN total NOTNULL THEN n ELSE 0 END"),
        RollupColumn("low", "min"),
        RollupColumn("high", "max"),
        RollupColumn("newest", "last"),
    ],
    ratios={"value": ("total", "finite")},
)

_columns, _ratios = _gauges(
    "utilisation", "memory_used", "power", "temperature", "sm_clock", "memory_clock"
)
GPU = Series(
    "gpu",
    GpuSample,
    key="gpu",
    axes=("time",),
    columns=[*_columns, RollupColumn("memory_total", "last"), RollupColumn("energy", "last")],
    ratios=_ratios,
)

_columns, _ratios = _gauges("cpu", "memory_used", "load")
HOST = Series(
    "host",
    HostSample,
    key="host",
    axes=("time",),
    columns=[*_columns, RollupColumn("memory_total", "last")],
    ratios=_ratios,
)

_columns, _ratios = _gauges("cpu", "rss", "processes")
PROCS = Series("procs", RankSample, key="rank", axes=("time",), columns=_columns, ratios=_ratios)

SERIES: tuple[Series[Any], ...] = (STEPS, LOGGED, GPU, HOST, PROCS)
