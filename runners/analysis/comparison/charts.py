"""The charts of a report, as data for plotly.js."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

import msgspec

from distrain.runners import formatting
from distrain.runners.analysis.comparison.chart_style import (
    LEGEND,
    MAX_NAME,
    MAX_NAME_NARROW,
    ReportChart,
    Trace,
    colour_of,
    row_labels,
    symbol_of,
)
from distrain.runners.analysis.comparison.curve_charts import make_curve_charts
from distrain.runners.analysis.comparison.descriptions import median_rate
from distrain.runners.analysis.comparison.model import Candidate, Comparison, Unit
from distrain.runners.analysis.comparison.table import phase_label
from distrain.runners.analysis.interval import Interval

ROW_HEIGHT = 46  # pixels of a candidate's row
FRAME_HEIGHT = 110  # pixels of everything around the rows
PHASES_LEGEND_HEIGHT = 80
MIN_SHARE_WITH_TEXT = 0.08  # of a phase, below which its bar has no room for a label
# Rates are spread over the height of their row, so that equal ones do not hide each other.
SPREAD = 0.24
GOLDEN_RATIO = 0.618


def make_charts(comparison: Comparison) -> list[ReportChart]:
    """Return the charts that have figures to show."""
    candidates = comparison.candidates
    charts = [
        _throughput_chart(comparison),
        _ratio_chart(comparison),
        _phase_chart(candidates),
        *make_curve_charts(candidates),
        _energy_chart(candidates),
    ]
    narrow = row_labels(candidates, MAX_NAME_NARROW)
    return [msgspec.structs.replace(chart, narrow=narrow) for chart in charts if chart.traces]


# --- a row for each candidate --------------------------------------------------------------------


def _throughput_chart(comparison: Comparison) -> ReportChart:
    candidates = comparison.candidates
    traces = []
    for index, candidate in enumerate(candidates):
        if candidate.rates:
            traces.append(_rate_dots(index, candidate, comparison.unit))
            rate = median_rate(candidate)
            traces.append(_point(index, candidate.name, rate, candidate.rate))
    dot = "one run per round" if comparison.kind == "bench" else "one stretch of the run"
    return ReportChart(
        id="throughput",
        title="Throughput",
        note=f"Large mark: median with 95 % interval. Faint dot: {dot}. Ring: an outlier, which "
        "hardly moves the median.",
        traces=traces,
        layout=_row_layout(candidates, comparison.unit, {"rangemode": "tozero"}),
    )


def _ratio_chart(comparison: Comparison) -> ReportChart:
    candidates = comparison.candidates
    ratios = [(index, each.name, each.ratio) for index, each in enumerate(candidates) if each.ratio]
    traces = [_point(index, name, ratio.value, ratio) for index, name, ratio in ratios]
    if traces:
        names = [candidate.name for candidate in candidates]
        traces.append(_point(names.index(comparison.baseline), comparison.baseline, 1.0, None))
    low = min([1.0, *(ratio.low for _, _, ratio in ratios)])
    high = max([1.0, *(ratio.high for _, _, ratio in ratios)])
    margin = 0.06 * (high - low)
    axis = {"ticksuffix": "×", "range": [low - margin, high + margin]}
    layout = _row_layout(candidates, f"ratio of {comparison.unit}", axis)
    layout["shapes"] = [
        {
            "type": "line",
            "x0": 1,
            "x1": 1,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"color": "--ink", "width": 1.5, "dash": "dot"},
            "layer": "below",
        }
    ]
    return ReportChart(
        id="ratios",
        title=f"Ratio to {comparison.baseline}",
        note="If an interval crosses the dotted line at 1, the difference is not significant.",
        traces=traces,
        layout=layout,
    )


def _energy_chart(candidates: Sequence[Candidate]) -> ReportChart:
    traces = [
        _point(index, candidate.name, candidate.joules_per_sample, None)
        for index, candidate in enumerate(candidates)
        if candidate.joules_per_sample is not None
    ]
    return ReportChart(
        id="energy",
        title="Energy",
        note="Joules of all GPUs per training sample, from the energy counters of the GPUs.",
        traces=traces,
        layout=_row_layout(candidates, "J/sample", {"rangemode": "tozero"}),
    )


def _rate_dots(index: int, candidate: Candidate, unit: Unit) -> Trace:
    count = len(candidate.rates)
    symbols = ["circle-open" if i in candidate.outliers else "circle" for i in range(count)]
    heights = [index + SPREAD * ((i * GOLDEN_RATIO) % 1 - 0.5) for i in range(count)]
    return {
        **_markers(candidate.name, index, symbols, 7, colour_of(index)),
        "x": candidate.rates,
        "y": heights,
        "opacity": 0.4,
        "hovertemplate": f"%{{x:,.4s}} {unit}<extra></extra>",
    }


def _point(index: int, name: str, value: float | None, interval: Interval | None) -> Trace:
    hover = f"{escape(name)}: {formatting.figure(value)}"
    if interval is not None:
        low, high = formatting.figure(interval.low), formatting.figure(interval.high)
        hover += f"<br>{low}–{high} (95 %)"
    trace = {
        **_markers(name, index, symbol_of(index), 13, "--paper"),
        "x": [value],
        "y": [index],
        "hovertemplate": f"{hover}<extra></extra>",
    }
    if interval is not None:
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [interval.high - interval.value],
            "arrayminus": [interval.value - interval.low],
            "color": colour_of(index),
            "thickness": 2.5,
            "width": 7,
        }
    return trace


def _markers(name: str, index: int, symbol: str | list[str], size: int, edge_colour: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escape(name),
        "marker": {
            "color": colour_of(index),
            "symbol": symbol,
            "size": size,
            "line": {"width": 1, "color": edge_colour},
        },
        "showlegend": False,
    }


# --- phases --------------------------------------------------------------------------------------


def _phase_chart(candidates: Sequence[Candidate]) -> ReportChart:
    names = dict.fromkeys(name for candidate in candidates for name in candidate.phases)
    has_overlap = any(candidate.overlap for candidate in candidates)
    traces = []
    for name in names:
        if name == "backward" and has_overlap:
            traces += _backward_bars(candidates)
        else:
            label = phase_label(name)
            traces.append(_bar(label, f"--{name}", candidates, partial(_phase_share, name)))
    axis = {"tickformat": ".0%", "range": [0, 1]}
    layout = _row_layout(candidates, "share of the time in steps", axis)
    layout["barmode"] = "stack"
    layout["bargap"] = 0.35
    layout["height"] += PHASES_LEGEND_HEIGHT
    layout["legend"] = {**LEGEND, "traceorder": "normal"}
    layout["uniformtext"] = {"minsize": 10, "mode": "hide"}
    return ReportChart(
        id="phases",
        title="Where the time goes",
        note="Shares of the time of all ranks. Comm wait is communication that does not overlap "
        "with backward.",
        traces=traces,
        layout=layout,
    )


def _backward_bars(candidates: Sequence[Candidate]) -> list[Trace]:
    """Return backward in two parts: without and with communication at the same time."""
    alone = _bar("backward", "--backward", candidates, _backward_alone)
    overlapping = _bar(
        "backward with comm overlap", "--backward", candidates, lambda each: each.overlap
    )
    overlapping["marker"]["pattern"] = {
        "shape": "/",
        "bgcolor": "--backward",
        "fgcolor": "--comm",
        "size": 7,
    }
    del overlapping["text"]
    return [alone, overlapping]


def _phase_share(name: str, candidate: Candidate) -> float | None:
    return candidate.phases.get(name)


def _backward_alone(candidate: Candidate) -> float | None:
    share = candidate.phases.get("backward")
    return None if share is None else max(0.0, share - (candidate.overlap or 0.0))


def _bar(
    name: str,
    colour: str,
    candidates: Sequence[Candidate],
    share_of: Callable[[Candidate], float | None],
) -> Trace:
    shares = [share_of(candidate) for candidate in candidates]
    texts = [
        formatting.percent(share) if share and share >= MIN_SHARE_WITH_TEXT else ""
        for share in shares
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": shares,
        "y": list(range(len(candidates))),
        "marker": {"color": colour, "line": {"color": "--paper", "width": 1}},
        "text": texts,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": "--on-bar"},
        "hovertemplate": f"{escape(name)}: %{{x:.1%}}<extra></extra>",
    }


def _row_layout(
    candidates: Sequence[Candidate], title: str, axis: dict[str, Any]
) -> dict[str, Any]:
    count = len(candidates)
    return {
        "height": ROW_HEIGHT * count + FRAME_HEIGHT,
        "xaxis": {"title": {"text": title}, **axis},
        "yaxis": {
            "tickvals": list(range(count)),
            "ticktext": row_labels(candidates, MAX_NAME),
            "range": [count - 0.5, -0.5],
            "fixedrange": True,
            "showgrid": False,
        },
        "hovermode": "closest",
    }
