"""The place on the screen where messages hide the least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.css.query import NoMatches
from textual.geometry import Offset, Size
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets._toast import Toast, ToastRack

KEY_BAR = 1  # line, which is never hidden
FRAME = frozenset(" ─│┌┐└┘├┤┬┴┼╭╮╰╯━┃┏┓┗┛▔▁▏▕")  # hiding these loses nothing
FOCUSED = 3  # a cell of the focused pane counts as so many others


def follow_layout(screen: Screen[Any]) -> None:
    """Place the messages of a screen whenever one comes or goes."""
    screen.screen_layout_refresh_signal.subscribe(screen, place_toasts)


def place_toasts(screen: Screen[Any]) -> None:
    """Move the messages of a screen to where they hide the least."""
    try:
        rack = screen.get_child_by_type(ToastRack)
    except NoMatches:
        return
    sizes = [toast.outer_size for toast in rack.query(Toast)]
    if sizes:
        size = Size(max(size.width for size in sizes), sum(size.height for size in sizes))
        place = choose_place(screen.size, size, _costs(screen, rack))
        rack.styles.margin = (0, 0, screen.size.height - place.y - size.height, 0)
        rack.set_class(place.x == 0, "-left")


def choose_place(screen: Size, toasts: Size, costs: Sequence[Sequence[int]]) -> Offset:
    """Return where toasts hide the least: in a corner, else at the left or right edge.

    `costs[y][x]` is how bad it is to hide a cell of the screen. Of equals the lowest place is
    chosen, and the right edge before the left one.
    """
    lowest, right = screen.height - KEY_BAR - toasts.height, screen.width - toasts.width
    corners = [(right, lowest), (right, 0), (0, lowest), (0, 0)]
    edges = [(x, y) for y in range(lowest, -1, -1) for x in (right, 0)]

    def cost(place: tuple[int, int]) -> int:
        x, y = place
        return sum(sum(row[x : x + toasts.width]) for row in costs[y : y + toasts.height])

    return Offset(*min([*corners, *edges], key=cost))


def _costs(screen: Screen[Any], rack: ToastRack) -> list[list[int]]:
    """Return for each cell of a screen how bad it is to hide what it shows."""
    costs = [[0] * screen.size.width for _ in range(screen.size.height)]
    for widget in screen.query(Widget):
        if not widget.is_on_screen or rack in widget.ancestors_with_self:
            continue
        geometry = screen.find_widget(widget)
        # The screen may have shrunk since its widgets were laid out.
        visible = geometry.visible_region.intersection(screen.size.region)
        cost = FOCUSED if widget is screen.focused else 1
        for y, strip in enumerate(
            widget.render_lines(visible.translate(-geometry.region.offset)), visible.y
        ):
            # Characters without a width make the text longer than the region.
            for x, character in zip(range(visible.x, visible.right), strip.text, strict=False):
                if character not in FRAME:
                    costs[y][x] = cost
    return costs
