"""Colours: those of statuses, and those of ranks and runs as they are legible on a ground."""

from __future__ import annotations

from rich.style import Style
from textual.color import Color

# The mark and the colour of each status.
STATUSES = {
    "queued": ("◌", "yellow"),
    "starting": ("◌", "cyan"),
    "running": ("●", "cyan"),
    "stopping": ("◍", "yellow"),
    "completed": ("✔", "green"),
    "failed": ("✘", "red"),
    "stopped": ("■", "yellow"),
}
UNKNOWN = ("?", "")
_FAINT = 0.25  # difference in brightness below which a colour is mixed with the text's


def legible(colour: str, paper: Color) -> Style:
    """The style of a text in a mark's colour on this ground."""
    return Style.from_color(apart(Color.parse(colour), paper).rich_color)


def apart(ink: Color, paper: Color) -> Color:
    """A colour, mixed with that of text where it would not stand out from the ground."""
    if abs(ink.brightness - paper.brightness) < _FAINT:
        return ink.blend(paper.get_contrast_text(1.0), 0.35)
    return ink
