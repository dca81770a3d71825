"""Colours of statuses, and colours of ranks and runs made legible on a background."""

from __future__ import annotations

from rich.style import Style
from textual.color import Color

# The colours of the states of a Slurm job; any other state (CANCELLED, TIMEOUT, …) is a failure.
JOB_STATES = {
    "PENDING": "yellow",
    "CONFIGURING": "yellow",
    "REQUEUED": "yellow",
    "SUSPENDED": "yellow",
    "RUNNING": "cyan",
    "COMPLETING": "cyan",
    "COMPLETED": "green",
}
FAILED_JOB = "red"

# The mark and the colour of each status.
STATUSES = {
    "queued": ("◌", "blue"),
    "starting": ("◌", "cyan"),
    "running": ("●", "cyan"),
    "stalled": ("◑", "yellow"),
    "recovering": ("↻", "magenta"),
    "stopping": ("◍", "cyan"),
    "completed": ("✔", "green"),
    "failed": ("✘", "red"),
    "stopped": ("■", "yellow"),
}
UNKNOWN = ("?", "")
_FAINT = 0.25  # least difference in brightness between a text and its background


def legible_style(colour: str, background: Color) -> Style:
    """Return the style of a text in a mark's colour on this background."""
    return Style.from_color(legible_colour(Color.parse(colour), background).rich_color)


def legible_colour(colour: Color, background: Color) -> Color:
    """Return a colour, mixed with the text colour if it is too close to the background."""
    if abs(colour.brightness - background.brightness) < _FAINT:
        return colour.blend(background.get_contrast_text(1.0), 0.35)
    return colour
