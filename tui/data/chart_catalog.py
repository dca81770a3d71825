"""The charts of a run: their names and the curves of the record that each shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from distrain.runners import formatting
from distrain.runners.records.timeseries.series import GPU, HOST, PROCS
from distrain.tui.data import chart_lines
from distrain.tui.data.chart import Chart, ChartLine
from distrain.tui.data.chart_source import ChartSource

LOGGED_CHART = "logged/"  # followed by the name of what a script has logged
OF_EVALUATIONS = ("evaluation", "eval loss")
PROBE_POINTS = 16  # of a curve, to see whether it has values


class ChartKind(NamedTuple):
    """A kind of chart. `lines` draws it; `empty_text` stands in place of a chart without lines,
    with "yet" while the run is live.
    """

    title: str
    lines: Callable[[ChartSource], list[ChartLine]]
    unit: str = ""
    format_value: Callable[[float], str] = formatting.figure
    empty_text: str = "no values"
    stacked: bool = False


CHART_KINDS: dict[str, ChartKind] = {
    "loss": ChartKind("Training loss", chart_lines.loss),
    "throughput": ChartKind(
        "Throughput",
        chart_lines.throughput,
        "samples/s",
        formatting.round_rate,
        "no steps after the warm-up",
    ),
    "evaluation": ChartKind(
        "Evaluation", chart_lines.evaluation, "", formatting.figure, "no evaluations"
    ),
    "phases": ChartKind("Step time by phase", chart_lines.phases, "ms", stacked=True),
    "eval loss": ChartKind(
        "Evaluation loss", chart_lines.eval_loss, "", formatting.figure, "no evaluations"
    ),
    "lr": ChartKind("Learning rate", chart_lines.rate),
    "gpu busy": ChartKind("GPU utilisation", chart_lines.gauges(GPU, "utilisation", "GPU"), "%"),
    "gpu memory": ChartKind(
        "GPU memory", chart_lines.gauges(GPU, "memory_used", "GPU", 2**-30), "GiB"
    ),
    "gpu power": ChartKind("GPU power", chart_lines.gauges(GPU, "power", "GPU"), "W"),
    "gpu heat": ChartKind("GPU temperature", chart_lines.gauges(GPU, "temperature", "GPU"), "°C"),
    "gpu clock": ChartKind("GPU clock", chart_lines.gauges(GPU, "sm_clock", "GPU"), "MHz"),
    "cpu": ChartKind("CPU of the ranks", chart_lines.gauges(PROCS, "cpu", "rank"), "% of a core"),
    "memory": ChartKind(
        "Memory of the ranks", chart_lines.gauges(PROCS, "rss", "rank", 2**-30), "GiB"
    ),
    "host cpu": ChartKind("CPU of the host", chart_lines.gauges(HOST, "cpu", "host"), "%"),
    "host memory": ChartKind(
        "Memory of the host", chart_lines.gauges(HOST, "memory_used", "host", 2**-30), "GiB"
    ),
}
GPU_CHARTS = tuple(name for name in CHART_KINDS if name.startswith("gpu "))


def chart_kind(name: str) -> ChartKind:
    """Return a chart of CHART_KINDS, or that of what a script has logged; raises KeyError."""
    if name.startswith(LOGGED_CHART):
        logged = name.removeprefix(LOGGED_CHART)
        return ChartKind(logged, partial(chart_lines.logged_values, logged))
    return CHART_KINDS[name]


def draw_chart(name: str, source: ChartSource) -> Chart:
    """Draw a chart; raises KeyError as `chart_kind` does."""
    kind = chart_kind(name)
    lines = kind.lines(source)
    format_value = kind.format_value
    if name == "evaluation" and lines:
        format_value = partial(formatting.metric_value, lines[0].name)
    title = kind.title
    if name == "throughput" and len(source.steps) > 1:
        title += " of a rank"
    if name in OF_EVALUATIONS and source.record.config.is_script:
        title += ", reported by the script"
    return Chart(
        title=title,
        lines=lines,
        x_axis=(source.axis.of_logged if name.startswith(LOGGED_CHART) else source.axis).name,
        unit=kind.unit,
        format_value=format_value,
        span=source.view.span,
        empty_text=empty_text(kind, source.is_live, source.view.span),
        stacked=kind.stacked,
    )


def empty_text(kind: ChartKind, live: bool, span: tuple[float, float] | None) -> str:
    """Return what to show in place of a chart without lines."""
    if span:
        return f"{kind.empty_text} in this range"
    return f"{kind.empty_text} yet" if live else kind.empty_text
