"""What a step's time goes to, as a bar of letters and colours."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from runners import events
from tui import marks
from tui.data.plots import PHASE_WORDS
from tui.spark import stacked

# With the letters that stand for them in the bar, and the colours that the plot has.
PHASES = [
    (name, letter, marks.of_rank(at).colour)
    for at, (name, letter) in enumerate(
        zip((*events.PHASES, events.OTHER), ("d", "f", "b", "w", "o", "·"), strict=True)
    )
]


def bar(shares: Mapping[str, float], width: int) -> Text:
    """Shares of the time side by side."""
    line = Text(no_wrap=True)
    wanted = [shares.get(name, 0.0) for name, _, _ in PHASES]
    for cells, (_, letter, colour) in zip(stacked(wanted, width), PHASES, strict=True):
        line.append(letter * cells, f"#000000 on {colour}")
    return line


def legend(room: int) -> Text:
    """What the letters of the bars stand for, as long as there is room."""
    words = Text(no_wrap=True)
    for name, _, colour in PHASES:
        words.append(PHASE_WORDS[name], colour).append(" ")
    return words if words.cell_len <= room else Text("time"[:room], "dim")
