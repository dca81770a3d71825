"""The names of a run's logs in one line, each one to be clicked at."""

from __future__ import annotations

from collections.abc import Sequence, Set

from rich.style import Style
from rich.text import Text
from textual.color import Color
from textual.content import Content

from tui import marks
from tui.widgets.inks import legible

GAP = "  "
BEFORE, AFTER = "‹ ", " ›"


def titles(names: Sequence[str], chosen: str, empty: Set[str], room: int, paper: Color) -> Content:
    """All of them, or those next to the chosen one that there is room for. A click runs `choose`.

    Those of empty logs are dim; ranks have their marks, in colours that are seen on the paper.
    """
    parts = [_title(name, name == chosen, name in empty, paper) for name in names]
    first = names.index(chosen) if chosen in names else 0
    last, used = first + 1, parts[first].cell_length + len(BEFORE + AFTER)
    grown = True
    while grown:
        grown = False
        for at in (last, first - 1):
            if 0 <= at < len(parts) and used + len(GAP) + parts[at].cell_length <= room:
                used += len(GAP) + parts[at].cell_length
                first, last, grown = min(first, at), max(last, at + 1), True
    line = Content(GAP).join(parts[first:last])
    return Content.assemble(BEFORE if first else "", line, AFTER if last < len(parts) else "")


def _title(name: str, chosen: bool, empty: bool, paper: Color) -> Content:
    style = "bold reverse" if chosen else "dim" if empty else ""
    if name.startswith("rank-"):
        rank = int(name.removeprefix("rank-"))
        mark = marks.of_rank(rank)
        ink = Style(dim=True) if empty else legible(mark.colour, paper)
        text = Text.assemble((mark.shape, ink), (f" rank {rank} " if chosen else f" {rank}", style))
    else:
        text = Text(f" {name} " if chosen else name, style)
    text.stylize(Style(meta={"@click": f"choose({name!r})"}))
    return Content.from_rich_text(text)
