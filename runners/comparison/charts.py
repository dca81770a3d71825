"""The charts of a report, as data for plotly.js."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

import msgspec

from runners import words
from runners.comparison import Comparison, Contestant, Interval
from runners.comparison.drawing import LEGEND, LONGEST, MARKS, NARROW, Chart, Trace, beside, colour
from runners.comparison.overlays import overlays
from runners.comparison.table import median

ROW, FRAME = 46, 110  # pixels of a contestant's row, and of what is around the rows


def charts(comparison: Comparison) -> list[Chart]:
    """Those that there are figures for."""
    contestants = comparison.contestants
    found = [_throughput(comparison), _ratios(comparison), _phases(contestants)]
    found += overlays(contestants)
    found.append(_energy(contestants))
    narrow = beside(contestants, NARROW)
    return [msgspec.structs.replace(chart, narrow=narrow) for chart in found if chart.traces]


# --- rows of contestants --------------------------------------------------------------------------


def _throughput(comparison: Comparison) -> Chart:
    contestants = comparison.contestants
    traces = []
    for index, each in enumerate(contestants):
        if each.rates:
            traces += [_dots(index, each), _point(index, each.name, median(each), each.rate)]
    what = "one run of each round" if comparison.kind == "bench" else "one stretch of the run"
    return Chart(
        id="throughput",
        title="Throughput",
        note=f"Large marks: medians with their intervals. A faint dot is {what}; a ring is one "
        "far from the others, which the median does not follow.",
        traces=traces,
        layout=_rows(contestants, "samples/s", {"rangemode": "tozero"}),
    )


def _dots(index: int, each: Contestant) -> Trace:
    shapes = ["circle-open" if i in each.outliers else "circle" for i in range(len(each.rates))]
    # Spread over the row, so that equal ones can be seen.
    heights = [index + 0.24 * ((i * 0.618) % 1 - 0.5) for i in range(len(each.rates))]
    return {
        **_drawn(each.name, index, shapes, 7, colour(index)),
        "x": each.rates,
        "y": heights,
        "opacity": 0.4,
        "hovertemplate": "%{x:,.4s} samples/s<extra></extra>",
    }


def _point(index: int, name: str, value: float | None, interval: Interval | None) -> Trace:
    shape = list(MARKS)[index % len(MARKS)]
    ends = f"<br>{_short(interval.low)}–{_short(interval.high)} (95 %)" if interval else ""
    trace = {
        **_drawn(name, index, shape, 13, "--paper"),
        "x": [value],
        "y": [index],
        "hovertemplate": f"{escape(name)}: {_short(value)}{ends}<extra></extra>",
    }
    if interval is not None:
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [interval.high - interval.value],
            "arrayminus": [interval.value - interval.low],
            "color": colour(index),
            "thickness": 2.5,
            "width": 7,
        }
    return trace


def _drawn(name: str, index: int, shape: str | list[str], size: int, edge: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escape(name),
        "marker": {
            "color": colour(index),
            "symbol": shape,
            "size": size,
            "line": {"width": 1, "color": edge},
        },
        "showlegend": False,
    }


def _ratios(comparison: Comparison) -> Chart:
    contestants = comparison.contestants
    traces = [
        _point(index, each.name, each.ratio.value, each.ratio)
        for index, each in enumerate(contestants)
        if each.ratio
    ]
    if traces:
        traces.append(_baseline(comparison))
    ends = [end for each in contestants if each.ratio for end in (each.ratio.low, each.ratio.high)]
    low, high = min([1.0, *ends]), max([1.0, *ends])
    room = 0.06 * (high - low)
    axis = {"ticksuffix": "×", "range": [low - room, high + room]}
    layout = _rows(contestants, "ratio of samples/s", axis)
    line = {"color": "--ink", "width": 1.5, "dash": "dot"}
    layout["shapes"] = [
        {
            "type": "line",
            "x0": 1,
            "x1": 1,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": line,
            "layer": "below",
        }
    ]
    return Chart(
        id="ratios",
        title=f"Compared with {comparison.baseline}",
        note="An interval that crosses the dotted line at 1 is no difference that was found.",
        traces=traces,
        layout=layout,
    )


def _baseline(comparison: Comparison) -> Trace:
    names = [each.name for each in comparison.contestants]
    return _point(names.index(comparison.baseline), comparison.baseline, 1.0, None)


def _energy(contestants: Sequence[Contestant]) -> Chart:
    traces = [
        _point(index, each.name, each.joules_per_sample, None)
        for index, each in enumerate(contestants)
        if each.joules_per_sample is not None
    ]
    return Chart(
        id="energy",
        title="Energy",
        note="Joules of all GPUs for each sample that was trained on, by the GPUs' own counters.",
        traces=traces,
        layout=_rows(contestants, "J/sample", {"rangemode": "tozero"}),
    )


def _phases(contestants: Sequence[Contestant]) -> Chart:
    names = dict.fromkeys(name for each in contestants for name in each.phases)
    traces = []
    for name in names:
        if name == "backward" and any(each.overlap for each in contestants):
            traces.append(_bar("backward", "--backward", contestants, _backward))
            hidden = _bar(
                "backward, communication hidden behind it",
                "--backward",
                contestants,
                lambda each: each.overlap,
            )
            hidden["marker"]["pattern"] = {
                "shape": "/",
                "bgcolor": "--backward",
                "fgcolor": "--comm",
                "size": 7,
            }
            del hidden["text"]
            traces.append(hidden)
        else:
            title = "communication that is waited for" if name == "comm" else name
            traces.append(_bar(title, f"--{name}", contestants, partial(_phase, name)))
    layout = _rows(
        contestants, "share of the time in steps", {"tickformat": ".0%", "range": [0, 1]}
    )
    layout |= {"barmode": "stack", "height": ROW * len(contestants) + FRAME + 80, "bargap": 0.35}
    layout["legend"] = {**LEGEND, "traceorder": "normal"}
    layout["uniformtext"] = {"minsize": 10, "mode": "hide"}
    return Chart(
        id="phases",
        title="Where the time goes",
        note="Shares of the ranks' time, all ranks together. Communication that is waited for is "
        "the rest that is not hidden behind backward.",
        traces=traces,
        layout=layout,
    )


def _phase(name: str, each: Contestant) -> float | None:
    return each.phases.get(name)


def _backward(each: Contestant) -> float | None:
    share = each.phases.get("backward")
    return None if share is None else max(0.0, share - (each.overlap or 0.0))


def _bar(
    name: str,
    shade: str,
    contestants: Sequence[Contestant],
    share: Callable[[Contestant], float | None],
) -> Trace:
    shares = [share(each) for each in contestants]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": shares,
        "y": list(range(len(contestants))),
        "marker": {"color": shade, "line": {"color": "--paper", "width": 1}},
        "text": [words.percent(value) if value and value >= 0.08 else "" for value in shares],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": "--on-bar"},
        "hovertemplate": f"{escape(name)}: %{{x:.1%}}<extra></extra>",
    }


def _rows(contestants: Sequence[Contestant], title: str, axis: dict[str, Any]) -> dict[str, Any]:
    count = len(contestants)
    return {
        "height": ROW * count + FRAME,
        "xaxis": {"title": {"text": title}, **axis},
        "yaxis": {
            "tickvals": list(range(count)),
            "ticktext": beside(contestants, LONGEST),
            "range": [count - 0.5, -0.5],
            "fixedrange": True,
            "showgrid": False,
        },
        "hovermode": "closest",
    }


def _short(value: float | None) -> str:
    return words.figure(value)
