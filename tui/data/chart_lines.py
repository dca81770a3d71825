"""The lines of each chart of a run."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from math import isfinite, isnan, nan
from statistics import fmean, median
from typing import Any

from distrain.runners import formatting
from distrain.runners.protocol.events import OTHER, PHASES
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.logged_curve import LOGGED_COLUMNS
from distrain.runners.records.timeseries.logged_curve import over_ranks as logged_over_ranks
from distrain.runners.records.timeseries.rollup import Series
from distrain.runners.records.timeseries.run_curve import points_per_rank
from distrain.runners.records.timeseries.series import LOGGED
from distrain.tui import marks
from distrain.tui.data.chart import ChartLine
from distrain.tui.data.chart_source import ChartSource
from distrain.tui.marks import RUN_MARK, Mark

PHASE_WORDS = {
    "data": "data",
    "forward": "forward",
    "backward": "backward",
    "comm": "comm wait",
    "optimizer": "optimizer",
    OTHER: "other",
}
MOST_LINES = 4  # with more ranks a chart shows their mean and the band of all
MOST_SOLO = 8  # with more ranks those that are like most cannot be shown alone
MOST_GAUGES = 8  # the same for GPUs, hosts and processes, which vary less

MEAN = "mean of ranks"
LEAST_RANKS = 4  # among which one can be far from most
MOST_FAR = 3  # ranks that have a line of their own
FAR = 6.0  # median absolute deviations
ALL = -1  # the key of many gauges together


def loss(source: ChartSource) -> list[ChartLine]:
    return _mean_and_ranks(source, "loss", "loss", ("rank_loss_low", "rank_loss_high"))


def throughput(source: ChartSource) -> list[ChartLine]:
    return _mean_and_ranks(
        source, "samples_per_s", "rank_rate", ("rank_rate_low", "rank_rate_high")
    )


def _mean_and_ranks(
    source: ChartSource, name: str, mean: str, band: tuple[str, str]
) -> list[ChartLine]:
    """Draw the mean of the ranks in the band of all, and the ranks that are far from most.

    Of few ranks, the others can be shown one after another.
    """
    ranks = source.steps
    if len(ranks) == 1:
        return [_rank_line(source, rank, name) for rank in ranks]
    run = source.run
    low, high = band
    far = outliers(ranks, name)
    others = [rank for rank in ranks if rank not in far] if len(ranks) <= MOST_SOLO else []
    return [
        ChartLine(MEAN, RUN_MARK, source.x(run), run[mean], run[low], run[high]),
        *(_rank_line(source, rank, name)._replace(low=None, high=None) for rank in far),
        *(_rank_line(source, rank, name)._replace(is_for_solo=True) for rank in others),
    ]


def outliers(curves: Mapping[int, Curve], name: str) -> list[int]:
    """Return the ranks whose mean is far from that of most, the farthest first, at most MOST_FAR.

    Far is more than FAR median absolute deviations, and more than a twentieth of the median.
    """
    means = {
        rank: fmean(known)
        for rank, curve in curves.items()
        if (known := [value for value in curve[name] if isfinite(value)])
    }
    if len(means) < LEAST_RANKS:
        return []
    middle = median(means.values())
    distances = {rank: abs(value - middle) for rank, value in means.items()}
    limit = max(FAR * median(distances.values()), abs(middle) / 20)
    far = [rank for rank, distance in distances.items() if distance > limit]
    return sorted(far, key=distances.__getitem__, reverse=True)[:MOST_FAR]


def _rank_line(source: ChartSource, rank: int, name: str) -> ChartLine:
    curve = source.steps[rank]
    band = curve[f"{name}_min"], curve[f"{name}_max"]
    return ChartLine(f"rank {rank}", marks.rank_mark(rank), source.x(curve), curve[name], *band)


def evaluation(source: ChartSource) -> list[ChartLine]:
    """Draw the metrics that are shares of correct answers, or all if there are none."""
    names = source.evaluations.names
    shares = [name for name in names if formatting.is_accuracy(name)] or names
    return _metrics(source, shares)


def eval_loss(source: ChartSource) -> list[ChartLine]:
    return _metrics(source, [name for name in source.evaluations.names if name == "loss"])


def _metrics(source: ChartSource, names: Iterable[str]) -> list[ChartLine]:
    lines = []
    for index, name in enumerate(names):
        x, y = source.evaluations.curve(name, source.axis.column)
        lines.append(ChartLine(name, marks.rank_mark(index), source.axis.values(x), y))
    return lines


def phases(source: ChartSource) -> list[ChartLine]:
    """Draw the milliseconds that a step spends in each phase: the mean over ranks."""
    curves = list(source.steps.values())
    if not curves:
        return []
    guide = min(curves, key=len)
    count = len(guide)
    curves = [curve for curve in curves if curve["step"][:count] == guide["step"]]
    steps = _sums(curves, "steps", count)
    seconds = {phase: _sums(curves, phase, count) for phase in PHASES}
    measured = zip(*seconds.values(), strict=True)
    whole = _sums(curves, "seconds", count)
    seconds[OTHER] = [max(0.0, a - sum(b)) for a, b in zip(whole, measured, strict=True)]
    if source.record.config.is_script:  # it may not report all phases, or none
        seconds = {phase: values for phase, values in seconds.items() if any(values)}
        if seconds.keys() == {OTHER}:
            return []
    return [
        ChartLine(
            PHASE_WORDS[phase],
            marks.rank_mark(index),
            source.x(guide)[:count],
            array("d", [1000 * a / b if b else nan for a, b in zip(values, steps, strict=True)]),
        )
        for index, (phase, values) in enumerate(seconds.items())
    ]


def _sums(curves: Iterable[Curve], name: str, count: int) -> list[float]:
    return [sum(values) for values in zip(*(c[name][:count] for c in curves), strict=True)]


def rate(source: ChartSource) -> list[ChartLine]:
    return [ChartLine("rate", RUN_MARK, source.x(source.run), source.run["lr"])]


def gauges(
    series: Series[Any], name: str, owner: str, scale: float = 1.0
) -> Callable[[ChartSource], list[ChartLine]]:
    def lines(source: ChartSource) -> list[ChartLine]:
        curves = source.gauges(series, name)
        if len(curves) > MOST_GAUGES:
            curves = {ALL: _together(curves.values(), name)}
        state = source.record.state
        alone = owner == "host" and len(state.hosts) < 2
        return [
            ChartLine(
                _gauge_name(owner, key, state),
                RUN_MARK if key == ALL or alone else marks.rank_mark(key),
                source.x(curve),
                _scaled(curve[name], scale),
                _scaled(curve[f"{name}_min"], scale),
                _scaled(curve[f"{name}_max"], scale),
            )
            for key, curve in curves.items()
        ]

    return lines


def _gauge_name(owner: str, key: int, state: RunState) -> str:
    """Return the name of a gauge: "rank 3", "GPU 0 of node-07", "node-07"."""
    if key == ALL:
        return f"mean of all {owner}s"
    if owner == "host":
        return state.host_name(key) if len(state.hosts) > 1 else owner
    return state.gpu_name(key) if owner == "GPU" else f"{owner} {key}"


def _together(curves: Iterable[Curve], name: str) -> Curve:
    """Return the mean, minimum and maximum of many gauges as one curve.

    It has the times of the gauge with the fewest points; a point counts at the time of its end.
    """
    curves = [curve for curve in curves if len(curve)]
    times = min((curve["time"] for curve in curves), key=len)
    points: list[list[tuple[float, float, float]]] = [[] for _ in times]
    columns = (name, f"{name}_min", f"{name}_max")
    for curve in curves:
        for time, *values in zip(curve["time"], *map(curve.__getitem__, columns), strict=True):
            if not isnan(values[0]):
                points[min(bisect_left(times, time), len(times) - 1)].append(tuple(values))
    rows = [_summary(points_at_time) for points_at_time in points]
    data = (array("d", column) for column in zip(*rows, strict=True))
    return Curve({"time": times, **dict(zip(columns, data, strict=True))})


def _summary(points: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Return the mean of the values, the least minimum and the greatest maximum."""
    if not points:
        return nan, nan, nan
    values, minima, maxima = zip(*points, strict=True)
    return fmean(values), min(minima), max(maxima)


def _scaled(values: array[float], scale: float) -> array[float]:
    return values if scale == 1.0 else array("d", [value * scale for value in values])


def logged_values(name: str, source: ChartSource) -> list[ChartLine]:
    """Draw the values of one name: a line for each rank and their mean, or that of many ranks."""
    ranks = source.record.logged().get(name, {})
    axis, span = source.axis.of_logged, source.view.span
    start, end = axis.limits(span) if span else (None, None)
    points = min(source.view.points, points_per_rank(len(ranks)))
    curves = source.record.curves(
        LOGGED,
        ranks.values(),
        columns=LOGGED_COLUMNS,
        points=points,
        axis=axis.column,
        start=start,
        end=end,
    )

    def line(title: str, mark: Mark, curve: Curve) -> ChartLine:
        x = axis.values(curve[axis.column])
        return ChartLine(title, mark, x, curve["value"], curve["low"], curve["high"])

    everything = logged_over_ranks(curves.values())
    if len(ranks) > MOST_LINES:
        return [line(MEAN, RUN_MARK, everything)]
    lines = [
        line(f"rank {rank}" if len(ranks) > 1 else name, marks.rank_mark(rank), curves[key])
        for rank, key in sorted(ranks.items())
    ]
    if len(ranks) > 1:
        lines.append(line(MEAN, RUN_MARK, everything)._replace(low=None, high=None))
    return lines
