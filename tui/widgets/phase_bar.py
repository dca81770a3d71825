"""The phases of a step as a bar of letters and colours."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text
from textual.content import Content

from distrain.runners.protocol import events
from distrain.tui import marks
from distrain.tui.data.chart_lines import PHASE_WORDS
from distrain.tui.plotting.sparkline import stacked_widths

# The phases with their letters in the bar, in the colours of the chart of phases.
PHASES = [
    (name, letter, marks.rank_mark(at).colour)
    for at, (name, letter) in enumerate(
        zip((*events.PHASES, events.OTHER), ("d", "f", "b", "w", "o", "·"), strict=True)
    )
]


def bar(shares: Mapping[str, float], width: int) -> Text:
    """Return a bar of `width` cells with the shares of each phase."""
    line = Text(no_wrap=True)
    wanted = [shares.get(name, 0.0) for name, _, _ in PHASES]
    for cells, (_, letter, colour) in zip(stacked_widths(wanted, width), PHASES, strict=True):
        line.append(letter * cells, f"#000000 on {colour}")
    return line


def letters(room: int) -> Content:
    """Return which letter stands for which phase, empty where the words do not fit."""
    parts = [
        part
        for name, letter, colour in PHASES
        for part in (" ", (letter, f"#000000 on {colour}"), f" {PHASE_WORDS[name]}")
    ]
    text = Content.assemble("time:", *parts)
    return text if text.cell_length <= room else Content()


def has_room_for_words(room: int) -> bool:
    """Return whether the header of the bar names the phases."""
    return legend(room).plain != "time"


def legend(room: int) -> Text:
    """Return the names of the phases in their colours, or "time" if they do not fit."""
    words = Text(no_wrap=True)
    for name, _, colour in PHASES:
        words.append(PHASE_WORDS[name], colour).append(" ")
    return words if words.cell_len <= room else Text("time"[:room], "dim")
