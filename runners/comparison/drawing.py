"""What all charts of a report share: their shape, colours, marks and names.

A colour is the name of a custom property of the report's style sheet ("--c0"), so that light and
dark have one home. A contestant keeps its colour and its mark in all charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from runners.comparison import Contestant, Line

COLOURS = 8
MARKS = {  # plotly's name and the character that looks like it
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
WIDE = 30.0
LONGEST, NARROW = 24, 11  # letters of a name beside an axis, and there on a phone
LEGEND = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}

Trace = dict[str, Any]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """`traces` and `layout` are plotly's; `by` has each trace's x by step and by time, where a
    reader may choose between them, `narrow` the names of the rows for a phone.
    """

    id: str
    title: str
    note: str
    traces: list[Trace]
    layout: dict[str, Any]
    by: dict[str, list[list[float]]] = {}
    narrow: list[str] = []


def mark(index: int) -> str:
    return list(MARKS.values())[index % len(MARKS)]


def colour(index: int) -> str:
    return f"--c{index % COLOURS}"


def beside(contestants: Sequence[Contestant], longest: int) -> list[str]:
    return [f"{called(each.name, longest)} {mark(i)}" for i, each in enumerate(contestants)]


def called(name: str, longest: int = LONGEST) -> str:
    """Shortened, and with nothing that plotly.js would take for a tag."""
    return escape(name if len(name) <= longest else f"{name[: longest - 1]}…")


def is_wide(lines: Sequence[Line]) -> bool:
    """Whether only a logarithmic scale shows how a curve goes on after it has fallen."""
    known = [value for line in lines for value in line.values if value is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) > WIDE
