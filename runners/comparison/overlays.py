"""Curves of all contestants over each other, as data for plotly.js."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runners import words
from runners.comparison import Contestant, Line
from runners.comparison.drawing import (
    COLOURS,
    DASHES,
    LEGEND,
    MARKS,
    Chart,
    Trace,
    called,
    colour,
    is_wide,
    mark,
)

CURVE = 370  # pixels
_TITLES = {
    "loss": ("Training loss", "mean loss"),
    "gpu": ("GPU utilisation", "% of the time"),
    "power": ("Power", "W, all GPUs"),
}
_NOTES = {
    "loss": "Of the steps while weights change.",
    "gpu": "The share of time in which a kernel ran, which is not how busy the chip was.",
}


def overlays(contestants: Sequence[Contestant]) -> list[Chart]:
    """Loss and evaluations by step and by time, and what GPUs did, where it was measured."""
    names = dict.fromkeys(name for each in contestants for name in each.curves)
    ordered = sorted(names, key=lambda name: (name in ("gpu", "power"), name != "loss"))
    return [_overlay(name, contestants) for name in ordered]


def _overlay(name: str, contestants: Sequence[Contestant]) -> Chart:
    having = [
        (i, each, each.curves[name]) for i, each in enumerate(contestants) if name in each.curves
    ]
    plain = name.removeprefix("eval ")
    title, unit = _TITLES.get(name, (f"Evaluation: {plain}", plain))
    by_step = all(line.step for _, _, line in having)
    axis: dict[str, Any] = {"title": {"text": unit}}
    if name in ("gpu", "power"):
        axis["rangemode"] = "tozero"
    elif words.is_share(plain):
        axis["tickformat"] = "~p"
    elif is_wide([line for _, _, line in having]):
        axis |= {
            "type": "log",
            "title": {"text": f"{unit}, logarithmic"},
            "dtick": 1,
            "exponentformat": "power",
        }
    return Chart(
        id=name.replace(" ", "-"),
        title=title,
        note=_NOTES.get(name, ""),
        traces=[_curve(index, each, line) for index, each, line in having],
        layout={
            "height": CURVE,
            "xaxis": {"title": {"text": "seconds since the first step began"}},
            "yaxis": axis,
            "hovermode": "x unified" if len(having) <= COLOURS else "closest",
            "legend": LEGEND,
        },
        by={
            "step": [line.step for _, _, line in having],
            "time": [line.time for _, _, line in having],
        }
        if by_step
        else {},
    )


def _curve(index: int, each: Contestant, line: Line) -> Trace:
    few = len(line.values) <= 40
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": f"{mark(index)} {called(each.name)}",
        "x": line.time,
        "y": line.values,
        "line": {
            "color": colour(index),
            "width": 2,
            "dash": DASHES[index // COLOURS % len(DASHES)],
        },
        "marker": {"symbol": list(MARKS)[index % len(MARKS)], "size": 6, "color": colour(index)},
    }
