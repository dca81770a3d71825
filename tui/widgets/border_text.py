"""The text that fits on the border of a pane."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widget import Widget

BORDER = 6  # cells of it at both sides of its text


def fit_on_border(texts: Sequence[str], pane: Widget) -> str:
    """Return the first of the texts that fits on the border of a pane, else the last one."""
    room = pane.outer_size.width - BORDER
    return next((text for text in texts if len(text) <= room), texts[-1])
