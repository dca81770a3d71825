"""The names of a run's logs in one line. A click on a name chooses that log."""

from __future__ import annotations

from collections.abc import Sequence, Set

from rich.style import Style
from rich.text import Text
from textual.color import Color
from textual.content import Content

from distrain.tui import marks
from distrain.tui.widgets.colours import legible_style

GAP = "  "
BEFORE, AFTER = "‹ ", " ›"


def log_tabs(
    names: Sequence[str], chosen: str, empty: Set[str], room: int, background: Color
) -> Content:
    """Return the names, or as many next to the chosen one as fit into `room` cells.

    A click runs the action `choose`. Names of empty logs are dim. Ranks have their marks, in
    colours that are legible on `background`.
    """
    parts = [_tab(name, name == chosen, name in empty, background) for name in names]
    first = names.index(chosen) if chosen in names else 0
    last = first + 1
    used = parts[first].cell_length + len(BEFORE + AFTER)
    grown = True
    while grown:
        grown = False
        for at in (last, first - 1):
            if 0 <= at < len(parts) and used + len(GAP) + parts[at].cell_length <= room:
                used += len(GAP) + parts[at].cell_length
                first = min(first, at)
                last = max(last, at + 1)
                grown = True
    line = Content(GAP).join(parts[first:last])
    return Content.assemble(BEFORE if first else "", line, AFTER if last < len(parts) else "")


def _tab(name: str, chosen: bool, empty: bool, background: Color) -> Content:
    style = "bold reverse" if chosen else "dim" if empty else ""
    if name.startswith("rank-"):
        rank = int(name.removeprefix("rank-"))
        mark = marks.rank_mark(rank)
        style_of_mark = Style(dim=True) if empty else legible_style(mark.colour, background)
        text = Text.assemble(
            (mark.shape, style_of_mark), (f" rank {rank} " if chosen else f" {rank}", style)
        )
    else:
        text = Text(f" {name} " if chosen else name, style)
    text.stylize(Style(meta={"@click": f"choose({name!r})"}))
    return Content.from_rich_text(text)
