"""The curve of a run, combined from the curves of its ranks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from math import inf, isfinite, isnan, nan
from statistics import fmean

from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.series import STEPS

_SUMS = ("samples", "loss_sum", "loss_samples", "timed_samples", "timed_seconds")
_IF_MISSING = {"loss_min": inf, "loss_max": -inf}  # values that change no minimum or maximum
RANK_COLUMNS = ("steps", "lr", "loss_min", "loss_max", *_SUMS)  # needed of each rank
RUN_COLUMNS = (
    *(*STEPS.axes, "lr", "samples"),
    *("samples_per_s", "rank_rate", "rank_rate_low", "rank_rate_high"),
    *("loss", "loss_min", "loss_max", "rank_loss_low", "rank_loss_high"),
)

# Rows that are read of all ranks together for a curve of the run, and of each rank at least.
_ROWS_OF_ALL_RANKS = 16_000
_LEAST_POINTS = 128


def points_per_rank(ranks: int) -> int:
    """Return how many points to read of each of so many ranks, at most, for the run's curve."""
    return max(_ROWS_OF_ALL_RANKS // max(ranks, 1), _LEAST_POINTS)


def over_ranks(curves: Iterable[Curve]) -> Curve:
    """Return the curve of the run (RUN_COLUMNS), given its ranks' curves (with RANK_COLUMNS).

    It has the points of the rank with the fewest, as far as every rank has reported. A rank's row
    that lies across two points is divided between them by steps. At each point `loss` is
    Σ loss_sum / Σ loss_samples, `rank_loss_low` and `rank_loss_high` are the least and the greatest
    of the ranks' own losses. `samples_per_s` is the sum of their own rates, `rank_rate` the mean,
    `rank_rate_low` and `rank_rate_high` the least and the greatest.
    """
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return Curve({name: array("d") for name in RUN_COLUMNS})
    guide = min(curves, key=len)
    last = min(curve["step"][-1] for curve in curves)
    points = _row_of(last, guide["step"]) + 1
    edges = [*guide["step"][: points - 1], last]
    columns = {name: guide[name][:points] for name in ("time", "epoch", "lr")}
    ranks = [_resample(curve, edges) for curve in curves]
    loss_sum = _combine(sum, ranks, "loss_sum")
    loss_samples = _combine(sum, ranks, "loss_samples")
    losses = [_divide(rank["loss_sum"], rank["loss_samples"]) for rank in ranks]
    # NaN propagates: while one rank still warms up, the run has no rate.
    rates = [_divide(rank["timed_samples"], rank["timed_seconds"]) for rank in ranks]
    columns |= {
        "step": array("d", edges),
        "samples": _combine(sum, ranks, "samples"),
        "loss": _divide(loss_sum, loss_samples),
        "loss_min": _nan_unless_finite(_combine(min, ranks, "loss_min")),
        "loss_max": _nan_unless_finite(_combine(max, ranks, "loss_max")),
        "rank_loss_low": array("d", [_least(values) for values in zip(*losses, strict=True)]),
        "rank_loss_high": array("d", [_greatest(values) for values in zip(*losses, strict=True)]),
        "samples_per_s": array("d", map(sum, zip(*rates, strict=True))),
        "rank_rate": array("d", map(fmean, zip(*rates, strict=True))),
        "rank_rate_low": array("d", [_least(values) for values in zip(*rates, strict=True)]),
        "rank_rate_high": array("d", [_greatest(values) for values in zip(*rates, strict=True)]),
    }
    return Curve(columns, guide.stride)


def add_rates(rates: Iterable[float | None]) -> float | None:
    """Return the sum of the ranks' rates; None while any rank has none, or there are no ranks."""
    total = 0.0
    count = 0
    for rate in rates:
        if rate is None:
            return None
        total += rate
        count += 1
    return total if count else None


def _resample(curve: Curve, edges: list[float]) -> dict[str, Sequence[float]]:
    """Return a rank's sums and its minimum and maximum loss between consecutive edges, in steps."""
    ends = curve["step"]
    if [*ends[: len(edges)]] == edges:  # the rank's windows end at the edges, as they usually do
        return {
            name: _replace_nan(curve[name][: len(edges)], _IF_MISSING.get(name, 0.0))
            for name in (*_SUMS, *_IF_MISSING)
        }
    rows = [_row_of(edge, ends) for edge in edges]
    parts = _parts_before(curve, rows, edges)
    resampled: dict[str, Sequence[float]] = {}
    for name in _SUMS:
        values = _replace_nan(curve[name], 0.0)
        sums = list(accumulate(values, initial=0.0))
        at_edges = [sums[row] + part * values[row] for row, part in zip(rows, parts, strict=True)]
        resampled[name] = [now - before for before, now in pairwise([0.0, *at_edges])]
    spans = _spans_between(rows, parts)
    low = _replace_nan(curve["loss_min"], inf)
    high = _replace_nan(curve["loss_max"], -inf)
    resampled["loss_min"] = [min(low[span], default=inf) for span in spans]
    resampled["loss_max"] = [max(high[span], default=-inf) for span in spans]
    return resampled


def _row_of(step: float, ends: Sequence[float]) -> int:
    """Return the row that a step lies in; one of the rows also in a damaged record."""
    return min(bisect_left(ends, step), len(ends) - 1)


def _parts_before(curve: Curve, rows: list[int], edges: list[float]) -> list[float]:
    """Return for each edge the part of its row, from 0 to 1, that lies before it."""
    parts = []
    for row, edge in zip(rows, edges, strict=True):
        steps = curve["steps"][row]
        parts.append(1.0 - min((curve["step"][row] - edge) / steps, 1.0) if steps else 1.0)
    return parts


def _spans_between(rows: list[int], parts: list[float]) -> list[slice]:
    """Return the rows that lie between consecutive edges, also in part."""
    spans = []
    first = 0
    for row, part in zip(rows, parts, strict=True):
        spans.append(slice(first, row + 1))
        first = row + 1 if part >= 1.0 else row  # a row that ends at an edge ends with it
    return spans


def _combine(
    how: Callable[[Iterable[float]], float], ranks: list[dict[str, Sequence[float]]], name: str
) -> array[float]:
    return array("d", map(how, zip(*(rank[name] for rank in ranks), strict=True)))


def _least(values: Iterable[float]) -> float:
    return min((value for value in values if not isnan(value)), default=nan)


def _greatest(values: Iterable[float]) -> float:
    return max((value for value in values if not isnan(value)), default=nan)


def _divide(numerators: Iterable[float], denominators: Iterable[float]) -> array[float]:
    pairs = zip(numerators, denominators, strict=True)
    return array("d", [above / below if below else nan for above, below in pairs])


def _replace_nan(values: array[float], replacement: float) -> Sequence[float]:
    if not isnan(sum(values)):
        return values
    return [replacement if isnan(value) else value for value in values]


def _nan_unless_finite(values: array[float]) -> array[float]:
    return array("d", [value if isfinite(value) else nan for value in values])
