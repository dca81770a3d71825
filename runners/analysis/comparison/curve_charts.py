"""Charts of the candidates' curves, one line per candidate, as data for plotly.js."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from distrain.runners import formatting
from distrain.runners.analysis.comparison.chart_style import (
    COLOURS,
    DASHES,
    LEGEND,
    ReportChart,
    Trace,
    band_colour_of,
    colour_of,
    mark_of,
    needs_log_scale,
    shorten,
    symbol_of,
)
from distrain.runners.analysis.comparison.curves import LOGGED_PREFIX
from distrain.runners.analysis.comparison.model import Candidate, CandidateCurve
from distrain.runners.config.field_types import SCRIPT

HEIGHT = 370  # pixels
MAX_WITH_MARKERS = 40  # points
MAX_AXIS_TITLE = 40  # characters
_GPU_CURVES = ("gpu", "power")
_TITLES = {  # title of the chart and of the vertical axis
    "loss": ("Training loss", "mean loss"),
    "gpu": ("GPU utilisation", "% of the time"),
    "power": ("Power", "W, all GPUs"),
}
_NOTES = {
    "loss": "Mean loss of the training samples, measured while the weights change.",
    "gpu": "Share of the time in which a kernel ran. It does not show how much of the GPU the "
    "kernel used.",
}
_LOGGED_NOTE = (
    "As the scripts log it: the mean of all ranks. The band is the range of the values behind each "
    "point."
)
_SINCE_FIRST_STEP = "seconds since the first step began"
_SINCE_START = "seconds since the start"


def make_curve_charts(candidates: Sequence[Candidate]) -> list[ReportChart]:
    """Return a chart for each curve: loss first, then evaluations, logged values, GPU figures."""
    names = dict.fromkeys(name for candidate in candidates for name in candidate.curves)
    ordered = sorted(names, key=lambda name: (name in _GPU_CURVES, name != "loss"))
    return [_make_chart(number, name, candidates) for number, name in enumerate(ordered)]


def _make_chart(number: int, name: str, candidates: Sequence[Candidate]) -> ReportChart:
    having = [(index, each) for index, each in enumerate(candidates) if name in each.curves]
    curves = [each.curves[name] for _, each in having]
    by_script = [each.strategy == SCRIPT for _, each in having]
    metric = name.removeprefix("eval ").removeprefix(LOGGED_PREFIX)
    is_logged = name.startswith(LOGGED_PREFIX)
    title, axis_title = (metric, metric) if is_logged else (f"Evaluation: {metric}", metric)
    title, axis_title = _TITLES.get(name, (title, axis_title))
    note = _NOTES.get(name, "")
    if is_logged:
        note = _LOGGED_NOTE
    elif name.startswith("eval ") and any(by_script):
        note = "As the scripts report it." if all(by_script) else "Of scripts, as they report it."
    traces: list[Trace] = []
    by: dict[str, list[list[float]]] = {"step": [], "time": []}
    for (index, candidate), curve in zip(having, curves, strict=True):
        drawn = [*_band(index, curve), _trace(index, candidate.name, curve)]
        traces += drawn
        by["step"] += [curve.step] * len(drawn)
        by["time"] += [curve.time] * len(drawn)
    return ReportChart(
        # "eval a b" and "eval a-b" are two charts; an id contains no blank.
        id=f"logged-{number}" if is_logged else quote(name.replace(" ", "-", 1), safe=""),
        title=title,
        note=note,
        traces=traces,
        layout={
            "height": HEIGHT,
            "xaxis": {"title": {"text": _SINCE_START if any(by_script) else _SINCE_FIRST_STEP}},
            "yaxis": _vertical_axis(name, metric, shorten(axis_title, MAX_AXIS_TITLE), curves),
            "hovermode": "x unified" if len(curves) <= COLOURS else "closest",
            "legend": {**LEGEND, "traceorder": "normal"},
        },
        by=by if all(curve.step for curve in curves) else {},
    )


def _vertical_axis(
    name: str, metric: str, title: str, curves: Sequence[CandidateCurve]
) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": title}}
    if name in _GPU_CURVES:
        axis["rangemode"] = "tozero"
    elif name.startswith("eval ") and formatting.is_accuracy(metric):
        axis["tickformat"] = "~p"
    elif needs_log_scale(curves):
        axis["type"] = "log"
        axis["title"] = {"text": f"{title}, logarithmic"}
        axis["dtick"] = 1
        axis["exponentformat"] = "power"
    return axis


def _band(index: int, curve: CandidateCurve) -> list[Trace]:
    """Return the traces between which the band of a curve is filled, if it has one."""
    if (curve.low, curve.high) in (([], []), (curve.values, curve.values)):
        return []
    edge = {
        "type": "scatter",
        "mode": "lines",
        "x": curve.time,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    fill = {"fill": "tonexty", "fillcolor": band_colour_of(index)}
    return [{**edge, "y": curve.low}, {**edge, "y": curve.high, **fill}]


def _trace(index: int, name: str, curve: CandidateCurve) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.values) <= MAX_WITH_MARKERS else "lines",
        "name": f"{mark_of(index)} {shorten(name)}",
        "x": curve.time,
        "y": curve.values,
        "line": {
            "color": colour_of(index),
            "width": 2,
            "dash": DASHES[index // COLOURS % len(DASHES)],
        },
        "marker": {"symbol": symbol_of(index), "size": 6, "color": colour_of(index)},
    }
