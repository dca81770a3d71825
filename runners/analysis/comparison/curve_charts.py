"""Charts of the candidates' curves, one line per candidate, as data for plotly.js."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distrain.runners import formatting
from distrain.runners.analysis.comparison.chart_style import (
    COLOURS,
    DASHES,
    LEGEND,
    ReportChart,
    Trace,
    colour_of,
    mark_of,
    needs_log_scale,
    shorten,
    symbol_of,
)
from distrain.runners.analysis.comparison.model import Candidate, CandidateCurve

HEIGHT = 370  # pixels
MAX_WITH_MARKERS = 40  # points
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


def make_curve_charts(candidates: Sequence[Candidate]) -> list[ReportChart]:
    """Return a chart for each curve: loss first, then evaluations, then GPU figures."""
    names = dict.fromkeys(name for candidate in candidates for name in candidate.curves)
    ordered = sorted(names, key=lambda name: (name in _GPU_CURVES, name != "loss"))
    return [_make_chart(name, candidates) for name in ordered]


def _make_chart(name: str, candidates: Sequence[Candidate]) -> ReportChart:
    indices = [index for index, each in enumerate(candidates) if name in each.curves]
    curves = [candidates[index].curves[name] for index in indices]
    metric = name.removeprefix("eval ")
    title, axis_title = _TITLES.get(name, (f"Evaluation: {metric}", metric))
    by: dict[str, list[list[float]]] = {}
    if all(curve.step for curve in curves):
        by = {"step": [curve.step for curve in curves], "time": [curve.time for curve in curves]}
    return ReportChart(
        id=name.replace(" ", "-"),
        title=title,
        note=_NOTES.get(name, ""),
        traces=[
            _trace(index, candidates[index].name, candidates[index].curves[name])
            for index in indices
        ],
        layout={
            "height": HEIGHT,
            "xaxis": {"title": {"text": "seconds since the first step began"}},
            "yaxis": _vertical_axis(name, metric, axis_title, curves),
            "hovermode": "x unified" if len(curves) <= COLOURS else "closest",
            "legend": LEGEND,
        },
        by=by,
    )


def _vertical_axis(
    name: str, metric: str, title: str, curves: Sequence[CandidateCurve]
) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": title}}
    if name in _GPU_CURVES:
        axis["rangemode"] = "tozero"
    elif formatting.is_accuracy(metric):
        axis["tickformat"] = "~p"
    elif needs_log_scale(curves):
        axis["type"] = "log"
        axis["title"] = {"text": f"{title}, logarithmic"}
        axis["dtick"] = 1
        axis["exponentformat"] = "power"
    return axis


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
