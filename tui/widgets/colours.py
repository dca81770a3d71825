"""Colours of statuses, and colours of ranks and runs made legible on a background."""

from __future__ import annotations

from collections.abc import Mapping

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
LEAST_CONTRAST = 3.0  # of what is not text: WCAG 2.2, success criterion 1.4.11
_FAINT = 0.25  # least difference in brightness between a text and its background


def legible_style(colour: str, background: Color) -> Style:
    """Return the style of a text in a mark's colour on this background."""
    return Style.from_color(legible_colour(Color.parse(colour), background).rich_color)


def legible_colour(colour: Color, background: Color) -> Color:
    """Return a colour, mixed with the text colour if it is too close to the background."""
    if abs(colour.brightness - background.brightness) < _FAINT:
        return colour.blend(background.get_contrast_text(1.0), 0.35)
    return colour


def contrast(one: Color, other: Color) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2, "contrast ratio")."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    """Return the relative luminance (WCAG 2.2)."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def visible_accent(variables: Mapping[str, str]) -> str:
    """Return the colour that marks the focus: the accent of a theme (by the names of its colours),
    or its primary colour or that of text where the accent is too close to the background.
    """
    background = Color.parse(variables["background"])
    if background.ansi is not None:
        return variables["accent"]
    names = ("accent", "primary", "foreground")
    visible = (
        variables[name]
        for name in names
        if contrast(Color.parse(variables[name]), background) >= LEAST_CONTRAST
    )
    return next(visible, variables["foreground"])
