"""What all charts of a report share: their data type, colours, marks and labels.

A colour is the name of a custom property in the report's style sheet ("--c0"), where light and dark
themes define it. A candidate has the same colour and mark in all charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from distrain.runners.analysis.comparison.model import Candidate, CandidateCurve

COLOURS = 8
MARKS = {  # plotly's name, and a character that looks like it
    "circle": "●",
    "square": "■",
    "diamond": "◆",
    "triangle-up": "▲",
    "cross": "✚",
    "x": "✖",
    "star": "★",
    "hexagon": "⬢",
}
DASHES = ("solid", "dash", "dot", "dashdot")
LOG_SCALE_RANGE = 30.0  # largest / smallest value, above which an axis is logarithmic
MAX_NAME = 24  # characters of a name at an axis
MAX_NAME_NARROW = 11  # the same, on a phone
LEGEND = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}

Trace = dict[str, Any]


class ReportChart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart for plotly.js.

    `traces`, `layout`: as plotly defines them.
    `by`: x of each trace by "step" and by "time", if the reader may choose between them.
    `narrow`: labels of the rows on a phone.
    """

    id: str
    title: str
    note: str
    traces: list[Trace]
    layout: dict[str, Any]
    by: dict[str, list[list[float]]] = {}
    narrow: list[str] = []


def symbol_of(index: int) -> str:
    """Return plotly's name of a candidate's mark."""
    return list(MARKS)[index % len(MARKS)]


def mark_of(index: int) -> str:
    """Return the character of a candidate's mark."""
    return list(MARKS.values())[index % len(MARKS)]


def colour_of(index: int) -> str:
    return f"--c{index % COLOURS}"


def band_colour_of(index: int) -> str:
    """Return the colour of the band between a candidate's minima and maxima."""
    return f"--c{index % COLOURS}-band"


def row_labels(candidates: Sequence[Candidate], max_name: int) -> list[str]:
    """Return the candidates' names, shortened, each with its mark."""
    return [
        f"{shorten(candidate.name, max_name)} {mark_of(index)}"
        for index, candidate in enumerate(candidates)
    ]


def shorten(name: str, longest: int = MAX_NAME) -> str:
    """Return a name of at most this many characters, escaped for plotly.js, which renders tags."""
    return escape(name if len(name) <= longest else f"{name[: longest - 1]}…")


def needs_log_scale(curves: Sequence[CandidateCurve]) -> bool:
    """Return whether values differ so much that a linear axis would flatten the smaller ones."""
    known = [value for curve in curves for value in curve.values if value is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) > LOG_SCALE_RANGE
