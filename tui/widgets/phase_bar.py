"""The phases of a step as a bar of letters and colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
UNNAMED = "time"  # the header of a bar that has no room for the names of the phases


def bar(shares: Mapping[str, float], width: int) -> Text:
    """Return a bar of `width` cells with the shares of each phase."""
    line = Text(no_wrap=True)
    wanted = [shares.get(name, 0.0) for name, _, _ in PHASES]
    for cells, (_, letter, colour) in zip(stacked_widths(wanted, width), PHASES, strict=True):
        line.append(letter * cells, f"#000000 on {colour}")
    return line


def letters(width: int) -> Content:
    """Return which letter stands for which phase, for the border of a pane with `width` cells for
    its content; without the last one, or empty, where the words do not fit.
    """
    texts = (_letters(PHASES), _letters(PHASES[:-1]))
    return next((text for text in texts if text.cell_length <= width - 2), Content())


def _letters(phases: Sequence[tuple[str, str, str]]) -> Content:
    parts = [
        part
        for name, letter, colour in phases
        for part in (" ", (letter, f"#000000 on {colour}"), f" {PHASE_WORDS[name]}")
    ]
    return Content.assemble("time:", *parts) if phases is PHASES else Content.assemble(*parts[1:])


def has_room_for_words(room: int) -> bool:
    """Return whether the header of the bar names the phases."""
    return legend(room).plain != UNNAMED


def legend(room: int) -> Text:
    """Return the names of the phases in their colours, or "time" if they do not fit."""
    words = Text(no_wrap=True)
    for name, _, colour in PHASES:
        words.append(PHASE_WORDS[name], colour).append(" ")
    return words if words.cell_len <= room else Text(UNNAMED[:room], "dim")
