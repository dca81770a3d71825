"""The plots of a run: what each is called and which lines of the record it draws."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from math import isnan, nan
from statistics import fmean
from typing import Any, NamedTuple

from runners import words
from runners.events import OTHER, PHASES, Evaluation
from runners.record import Record, points_of_each
from runners.rollup import Curve, Series
from runners.series import GPU, HOST, PROCS, RANK_COLUMNS, STEPS, over_ranks
from runners.state import RunState
from tui import marks
from tui.data.chart import Chart, Line
from tui.marks import RUN_MARK

PHASE_WORDS = {
    "data": "data",
    "forward": "forward",
    "backward": "backward",
    "comm": "waiting",
    "optimizer": "optimizer",
    OTHER: "other",
}
_STEP_COLUMNS = (
    *RANK_COLUMNS,
    "loss",
    "samples_per_s",
    "samples_per_s_min",
    "samples_per_s_max",
    "seconds",
    *PHASES,
)
MOST_LINES = 16  # ranks or GPUs above which a plot shows all of them together

USUAL = ("loss", "throughput", "evaluation", "phases")


class View(NamedTuple):
    """What of a run is to be seen: the x axis ("step", "epoch", "time"), the part of it (None:
    all), and how many points a line may have.
    """

    plots: tuple[str, ...] = USUAL
    axis: str = "step"
    span: tuple[float, float] | None = None
    points: int = 256

    def shows_all_of(self, other: View) -> bool:
        """Whether both show the whole record by the same points, on whatever axes."""
        return self.span is other.span is None and self.points == other.points


class Look:
    """One reading of a record; what several plots need is read once."""

    def __init__(self, record: Record, view: View, evaluations: Sequence[Evaluation]) -> None:
        self.record, self.view, self.evaluations = record, view, evaluations

    @cached_property
    def steps(self) -> dict[int, Curve]:
        start, end = self.view.span or (None, None)
        return self.record.curves(
            STEPS,
            columns=_STEP_COLUMNS,
            points=min(self.view.points, points_of_each(self._ranks)),
            axis=self.view.axis,
            start=start,
            end=end,
        )

    @property
    def _ranks(self) -> int:
        plan = self.record.state.plan
        return plan.world_size if plan else 1

    @cached_property
    def run(self) -> Curve:
        return over_ranks(self.steps.values())

    def gauges(self, series: Series[Any], *names: str) -> dict[int, Curve]:
        """Curves of what is sampled by time, over the time that the view's steps took."""
        columns = [column for name in names for column in (name, f"{name}_min", f"{name}_max")]
        start, end = self.view.span or (None, None)
        if self.view.span and self.view.axis != "time":
            times = self.run["time"]
            start, end = (times[0], times[-1]) if len(times) else (None, None)
        return self.record.curves(
            series, columns=columns, points=self.view.points, axis="time", start=start, end=end
        )

    def x(self, curve: Curve) -> Sequence[float]:
        """The x values of a curve, also where it knows nothing but the time."""
        axis = self.view.axis
        if axis in curve.columns:
            return curve[axis]
        times, values = self.run["time"], self.run[axis]
        return array("d", [_at(time, times, values) for time in curve["time"]])


def _at(time: float, times: Sequence[float], values: Sequence[float]) -> float:
    """The value at a time, on a straight line between its neighbours; NaN before and after."""
    right = bisect_left(times, time)
    if right == len(times) or (right == 0 and time < times[0]):
        return nan
    if right == 0:
        return values[0]
    part = (time - times[right - 1]) / ((times[right] - times[right - 1]) or 1.0)
    return values[right - 1] + part * (values[right] - values[right - 1])


# --- lines ---------------------------------------------------------------------------------------


def _loss(look: Look) -> list[Line]:
    run = look.run
    if len(look.steps) > MOST_LINES:
        least, most = run["loss_min"], run["loss_max"]
        return [Line("all", RUN_MARK, look.x(run), run["loss"], least, most)]
    lines = [
        Line(
            f"rank {rank}", marks.of_rank(rank), look.x(c), c["loss"], c["loss_min"], c["loss_max"]
        )
        for rank, c in look.steps.items()
    ]
    return [*lines, Line("all", RUN_MARK, look.x(run), run["loss"])] if len(lines) > 1 else lines


def _throughput(look: Look) -> list[Line]:
    run = look.run
    total = Line("all", RUN_MARK, look.x(run), run["samples_per_s"])
    if len(look.steps) > MOST_LINES:
        return [total]
    lines = [
        Line(
            f"rank {rank}",
            marks.of_rank(rank),
            look.x(curve),
            curve["samples_per_s"],
            curve["samples_per_s_min"],
            curve["samples_per_s_max"],
        )
        for rank, curve in look.steps.items()
    ]
    return [*lines, total] if len(lines) > 1 else lines


def _evaluation(look: Look) -> list[Line]:
    """Shares of right answers; where a task has none, all its metrics."""
    names = [name for found in look.evaluations[:1] for name in found.metrics]
    shares = [name for name in names if words.is_share(name)] or names
    return _metrics(look, shares)


def _eval_loss(look: Look) -> list[Line]:
    names = [name for found in look.evaluations[:1] for name in found.metrics]
    return _metrics(look, [name for name in names if name == "loss"])


def _metrics(look: Look, names: Iterable[str]) -> list[Line]:
    x = array("d", [getattr(found, look.view.axis) for found in look.evaluations])
    return [
        Line(name, marks.of_rank(index), x, _values(look.evaluations, name))
        for index, name in enumerate(names)
    ]


def _values(evaluations: Iterable[Evaluation], name: str) -> array[float]:
    found = (evaluation.metrics.get(name) for evaluation in evaluations)
    values = (None if metric is None else metric.value for metric in found)
    return array("d", [nan if value is None else value for value in values])


def _phases(look: Look) -> list[Line]:
    """Milliseconds of a step, the mean of the ranks that have the same points."""
    curves = list(look.steps.values())
    if not curves:
        return []
    guide = min(curves, key=len)
    count = len(guide)
    curves = [curve for curve in curves if curve["step"][:count] == guide["step"]]
    steps = _sums(curves, "steps", count)
    seconds = {phase: _sums(curves, phase, count) for phase in PHASES}
    told = zip(*seconds.values(), strict=True)
    whole = _sums(curves, "seconds", count)
    seconds[OTHER] = [max(0.0, a - sum(b)) for a, b in zip(whole, told, strict=True)]
    return [
        Line(
            PHASE_WORDS[phase],
            marks.of_rank(index),
            look.x(guide)[:count],
            array("d", [1000 * a / b if b else nan for a, b in zip(values, steps, strict=True)]),
        )
        for index, (phase, values) in enumerate(seconds.items())
    ]


def _sums(curves: Iterable[Curve], name: str, count: int) -> list[float]:
    return [sum(values) for values in zip(*(c[name][:count] for c in curves), strict=True)]


def _rate(look: Look) -> list[Line]:
    return [Line("rate", RUN_MARK, look.x(look.run), look.run["lr"])]


def _gauges(
    series: Series[Any], name: str, of: str, scale: float = 1.0
) -> Callable[[Look], list[Line]]:
    def lines(look: Look) -> list[Line]:
        curves = look.gauges(series, name)
        if len(curves) > MOST_LINES:
            curves = {ALL: _together(curves.values(), name)}
        state = look.record.state
        alone = of == "host" and len(state.hosts) < 2
        return [
            Line(
                _named(of, key, state),
                RUN_MARK if key == ALL or alone else marks.of_rank(key),
                look.x(curve),
                *(_scaled(curve[column], scale) for column in (name, f"{name}_min", f"{name}_max")),
            )
            for key, curve in curves.items()
        ]

    return lines


ALL = -1  # the key of many gauges together


def _named(of: str, key: int, state: RunState) -> str:
    """ "rank 3", "GPU 0 of node-07", "node-07"."""
    if key == ALL:
        return f"mean of all {of}s"
    if of == "host":
        return state.machine(key) if len(state.hosts) > 1 else of
    return state.gpu(key) if of == "GPU" else f"{of} {key}"


def _together(curves: Iterable[Curve], name: str) -> Curve:
    """The mean, least and most of many gauges, at the times of the one with the fewest points: a
    point counts where it ends.
    """
    curves = [curve for curve in curves if len(curve)]
    times = min((curve["time"] for curve in curves), key=len)
    found: list[list[tuple[float, float, float]]] = [[] for _ in times]
    columns = (name, f"{name}_min", f"{name}_max")
    for curve in curves:
        for time, *values in zip(curve["time"], *map(curve.__getitem__, columns), strict=True):
            if not isnan(values[0]):
                found[min(bisect_left(times, time), len(times) - 1)].append(tuple(values))
    rows = [
        (fmean(values), min(least), max(most)) if there else (nan, nan, nan)
        for there in found
        for values, least, most in [list(zip(*there, strict=True)) or ((), (), ())]
    ]
    data = (array("d", column) for column in zip(*rows, strict=True))
    return Curve({"time": times, **dict(zip(columns, data, strict=True))})


def _scaled(values: array[float], scale: float) -> array[float]:
    return values if scale == 1.0 else array("d", [value * scale for value in values])


# --- the table -----------------------------------------------------------------------------------


class Plot(NamedTuple):
    """A kind of chart. `lines` makes it of a look; `hint` stands where there are none."""

    title: str
    lines: Callable[[Look], list[Line]]
    unit: str = ""
    worded: Callable[[float], str] = words.figure
    hint: str = "nothing yet"


_GPU_HINT = "no GPU in this run"
PLOTS: dict[str, Plot] = {
    "loss": Plot("training loss", _loss),
    "throughput": Plot(
        "throughput", _throughput, "samples/s", words.round_rate, "no step after the warm-up yet"
    ),
    "evaluation": Plot("evaluation", _evaluation, "", words.figure, "no evaluation yet"),
    "phases": Plot("time of a step", _phases, "ms"),
    "eval loss": Plot("evaluation loss", _eval_loss, "", words.figure, "no evaluation yet"),
    "lr": Plot("learning rate", _rate),
    "gpu busy": Plot("GPU utilisation", _gauges(GPU, "utilisation", "GPU"), "%", hint=_GPU_HINT),
    "gpu memory": Plot(
        "GPU memory", _gauges(GPU, "memory_used", "GPU", 2**-30), "GiB", hint=_GPU_HINT
    ),
    "gpu power": Plot("GPU power", _gauges(GPU, "power", "GPU"), "W", hint=_GPU_HINT),
    "gpu heat": Plot("GPU temperature", _gauges(GPU, "temperature", "GPU"), "°C", hint=_GPU_HINT),
    "gpu clock": Plot("GPU clock", _gauges(GPU, "sm_clock", "GPU"), "MHz", hint=_GPU_HINT),
    "cpu": Plot("CPU of the ranks", _gauges(PROCS, "cpu", "rank"), "% of a core"),
    "memory": Plot("memory of the ranks", _gauges(PROCS, "rss", "rank", 2**-30), "GiB"),
    "host cpu": Plot("CPU of the host", _gauges(HOST, "cpu", "host"), "%"),
    "host memory": Plot("memory of the host", _gauges(HOST, "memory_used", "host", 2**-30), "GiB"),
}


def chart(name: str, look: Look) -> Chart:
    """One plot of the table, drawn of a look; raises KeyError for a name it does not have."""
    plot = PLOTS[name]
    lines = plot.lines(look)
    worded = plot.worded
    if name == "evaluation" and lines:
        worded = partial(words.metric_value, lines[0].name)
    return Chart(
        title=plot.title,
        lines=lines,
        x_axis=look.view.axis,
        unit=plot.unit,
        worded=worded,
        span=look.view.span,
        empty=plot.hint,
    )
