"""Curves of a comparison: loss and evaluations by step and by time, and what GPUs did."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from runners.comparison import Comparison, Contestant, Line
from runners.errors import DistrainError
from runners.record import Record
from runners.series import GPU
from runners.words import shares_first

POINTS = 300


def with_curves(comparison: Comparison) -> Comparison:
    """A bench with the curves of one run of each contestant, that of its median rate; a run that
    was removed since has none.
    """
    return msgspec.structs.replace(
        comparison, contestants=[_with_curves(each) for each in comparison.contestants]
    )


def _with_curves(each: Contestant) -> Contestant:
    if not each.folders:
        return each
    rates = each.rates if len(each.rates) == len(each.folders) else [0.0] * len(each.folders)
    middle = sorted(range(len(rates)), key=rates.__getitem__)[len(rates) // 2]
    try:
        with Record(Path(each.folders[middle])) as record:
            return msgspec.structs.replace(each, curves=curves(record))
    except DistrainError:
        return each


def curves(record: Record) -> dict[str, Line]:
    """What is drawn of a run; see Contestant. Times count from before its first step, for how
    long processes take to start says nothing of training.
    """
    state = record.state
    began = state.facts.time if state.facts else state.started or state.created
    overall = record.overall(points=POINTS)
    found = {}
    if len(overall):
        found["loss"] = Line(
            step=list(overall["step"]),
            time=_since(began, overall["time"]),
            values=_known(overall["loss"]),
        )
    found |= _evaluated(record, began)
    return found | _sampled(record, began)


def _evaluated(record: Record, began: float) -> dict[str, Line]:
    evaluations = record.evaluations()
    evaluations = evaluations[:: -(-len(evaluations) // POINTS) or 1]
    names = shares_first({name: 0 for each in evaluations for name in each.metrics})
    found = {}
    for name in names:
        having = [each for each in evaluations if name in each.metrics]
        found[f"eval {name}"] = Line(
            step=[float(each.step) for each in having],
            time=_since(began, [each.time for each in having]),
            values=[each.metrics[name].value for each in having],
        )
    return found


def _sampled(record: Record, began: float) -> dict[str, Line]:
    gpus = list(record.curves(GPU, columns=("utilisation", "power"), points=POINTS).values())
    rows = min(map(len, gpus), default=0)
    found = {}
    for name, column in (("gpu", "utilisation"), ("power", "power")):
        if rows:
            total = np.sum([np.asarray(curve[column][:rows]) for curve in gpus], axis=0)
            values = _known(total / len(gpus) if name == "gpu" else total)
            if any(value is not None for value in values):
                time = _since(began, gpus[0]["time"][:rows])
                found[name] = Line(time=time, values=values)
    return found


def _since(began: float, times: Any) -> list[float]:
    return [round(time - began, 3) for time in times]


def _known(values: Any) -> list[float | None]:
    return [float(value) if isfinite(value) else None for value in values]
