"""The corner of the screen in which messages hide the least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.css.query import NoMatches
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets._toast import Toast, ToastRack

KEY_BAR = 1  # line, which is never hidden


def move_toasts(screen: Screen[Any]) -> None:
    """Move the messages of a screen to the corner where they hide nothing of the focused pane."""
    try:
        rack = screen.get_child_by_type(ToastRack)
    except NoMatches:
        return
    toasts = [toast.outer_size for toast in rack.query(Toast)]
    if toasts:
        corner = choose_corner(screen.size, toasts, _data_of(screen.focused))
        rack.set_class("top" in corner, "-top")
        rack.set_class("left" in corner, "-left")


def choose_corner(screen: Size, toasts: Sequence[Size], taken: Region) -> str:
    """Return the corner where toasts hide the fewest cells of a region, the first of equals."""
    width = max(toast.width for toast in toasts)
    height = sum(toast.height for toast in toasts)
    bottom, right = screen.height - KEY_BAR - height, screen.width - width
    corners = {
        "bottom right": Region(right, bottom, width, height),
        "top right": Region(right, 0, width, height),
        "bottom left": Region(0, bottom, width, height),
        "top left": Region(0, 0, width, height),
    }
    return min(corners, key=lambda name: corners[name].intersection(taken).area)


def _data_of(pane: Widget | None) -> Region:
    """Return the cells of a pane that hold data: a table may be longer than its lines."""
    if pane is None:
        return Region()
    region = pane.region
    if pane.is_scrollable:
        return region.crop_size(Size(region.width, pane.virtual_size.height + pane.gutter.height))
    return region
