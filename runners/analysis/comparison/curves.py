"""The curves of a candidate: loss, evaluations and logged values by step and time, GPUs by time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite, nan
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from distrain.runners.analysis.comparison.model import Candidate, CandidateCurve, Comparison
from distrain.runners.analysis.statistics import FloatArray
from distrain.runners.errors import DistrainError
from distrain.runners.formatting import sort_metrics
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.logged_curve import order_names
from distrain.runners.records.timeseries.series import GPU

MAX_POINTS = 300
MAX_LOGGED_CURVES = 24  # names that scripts have logged
LOGGED_PREFIX = "logged "


def add_curves(comparison: Comparison) -> Comparison:
    """Return a bench's comparison with the curves of each candidate's run of median rate. A run
    that was deleted has none.
    """
    candidates = [_add_curves(candidate) for candidate in comparison.candidates]
    return msgspec.structs.replace(comparison, candidates=candidates)


def choose_logged(records: Sequence[Record]) -> tuple[list[str], int]:
    """Return which names that scripts have logged to show, and how many there are."""
    names = order_names(record.logged() for record in records)
    return names[:MAX_LOGGED_CURVES], len(names)


def read_curves(record: Record, logged: Iterable[str] | None = None) -> dict[str, CandidateCurve]:
    """Return the curves of a run by name; see Candidate.

    `logged` are the names of logged values to read, by default the first ones. Times count from
    the first step, because the start of the processes is no training. When a script takes its
    first step is not known, so its times count from the start of its processes.
    """
    if logged is None:
        logged, _ = choose_logged([record])
    state = record.state
    start = state.facts.time if state.facts else state.started or state.created
    curves = {}
    overall = record.overall(points=MAX_POINTS)
    if any(map(isfinite, overall["loss"])):
        curves["loss"] = CandidateCurve(
            step=list(overall["step"]),
            time=_seconds_since(start, overall["time"]),
            values=_finite_or_none(overall["loss"]),
        )
    curves |= _evaluation_curves(record, start)
    curves |= _logged_curves(record, start, logged)
    return curves | _gpu_curves(record, start)


def _add_curves(candidate: Candidate) -> Candidate:
    if not candidate.folders:
        return candidate
    order = list(range(len(candidate.folders)))
    if len(candidate.rates) == len(order):
        order.sort(key=candidate.rates.__getitem__)
    folder = candidate.folders[order[len(order) // 2]]
    try:
        with Record(Path(folder)) as record:
            return msgspec.structs.replace(candidate, curves=read_curves(record))
    except DistrainError:
        return candidate


def _evaluation_curves(record: Record, start: float) -> dict[str, CandidateCurve]:
    evaluations = record.evaluations()
    curves = {}
    for name in sort_metrics({name: 0 for each in evaluations for name in each.metrics}):
        having = [each for each in evaluations if name in each.metrics]
        stride = -(-len(having) // MAX_POINTS)
        having = having[::-stride][::-1]  # the last one is always among them
        curves[f"eval {name}"] = CandidateCurve(
            step=[float(each.step) for each in having],
            time=_seconds_since(start, [each.time for each in having]),
            values=[each.metrics[name].value for each in having],
        )
    return curves


def _logged_curves(record: Record, start: float, names: Iterable[str]) -> dict[str, CandidateCurve]:
    """Return the mean of all ranks for each name, with their extremes."""
    curves = {}
    for name in names:
        curve = record.logged_curve(name, points=MAX_POINTS)
        if len(curve):
            curves[LOGGED_PREFIX + name] = CandidateCurve(
                step=list(curve["step"]),
                time=_seconds_since(start, curve["time"]),
                values=_finite_or_none(curve["value"]),
                low=_finite_or_none(curve["low"]),
                high=_finite_or_none(curve["high"]),
            )
    return curves


def _gpu_curves(record: Record, start: float) -> dict[str, CandidateCurve]:
    """Return the mean utilisation and the total power of all GPUs that were sampled at a time.

    A restarted job may get other GPUs, and a host may join later than others.
    """
    curves = record.curves(GPU, columns=("utilisation", "power"), points=MAX_POINTS).values()
    gpus = [gpu for gpu in curves if len(gpu)]
    if not gpus:
        return {}
    times = np.unique(np.concatenate([gpu["time"] for gpu in gpus]))
    stride = -(-len(times) // MAX_POINTS)
    times = times[::-stride][::-1]
    counts = np.zeros(len(times))
    sums = {"utilisation": np.zeros(len(times)), "power": np.zeros(len(times))}
    for gpu in gpus:
        rows, is_sampled = _rows_at(np.asarray(gpu["time"]), times)
        counts += is_sampled
        for column, total in sums.items():
            total[is_sampled] += np.asarray(gpu[column])[rows[is_sampled]]
    found = {}
    busy = sums["utilisation"] / np.where(counts, counts, nan)  # none where the clock was set back
    for name, values in (("gpu", busy), ("power", np.where(counts, sums["power"], nan))):
        known = _finite_or_none(values)
        if any(value is not None for value in known):
            found[name] = CandidateCurve(time=_seconds_since(start, times), values=known)
    return found


def _rows_at(ends: FloatArray, times: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the row of a GPU's curve that each time lies in, and whether it lies in one.

    `ends` are the times at which the rows end. Hosts take their samples at different moments, so a
    row reaches up to two intervals beyond them.
    """
    reach = 2 * float(np.median(np.diff(ends))) if len(ends) > 1 else 0.0
    rows = np.minimum(np.searchsorted(ends, times), len(ends) - 1)
    is_sampled: NDArray[np.bool_] = np.abs(ends[rows] - times) <= reach
    return rows, is_sampled


def _seconds_since(start: float, times: Iterable[float]) -> list[float]:
    return [round(time - start, 3) for time in times]


def _finite_or_none(values: Iterable[float]) -> list[float | None]:
    return [float(value) if isfinite(value) else None for value in values]
