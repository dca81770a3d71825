"""The legend of a chart: mark, name and value of each line, in one or several lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from distrain.runners import formatting

GAP = 2  # cells between two entries


class Entry(NamedTuple):
    """A line of the chart in the legend. `room` is the number of cells that its values may need."""

    number: int
    shape: str
    name: str
    room: int


class Legend(NamedTuple):
    """Where entries are: lines of entries with the width of each; they do not move with values.

    `prefix` is the word that all names had in common, `hidden` the number of lines without room.
    """

    lines: Sequence[Sequence[tuple[Entry, int]]]
    prefix: str = ""
    hidden: int = 0
    has_values: bool = True


def arrange(entries: Sequence[Entry], width: int, most: int, most_names: int = 0) -> Legend:
    """Return the legend that tells most in at most `most` lines of `width` cells.

    If there is too little room, a word that all names share is written once, then values are left
    out, for which there may be `most_names` lines, and in the end entries.
    """
    shared = _shared_word(entries)
    short = [each._replace(name=each.name.removeprefix(shared)) for each in entries]
    full = (("", entries, True, most), (shared, short, True, most))
    for prefix, shown, has_values, limit in (*full, (shared, short, False, max(most, most_names))):
        lines = _flow(shown, width, cell_len(prefix), has_values)
        if len(lines) <= limit and _fits(lines, width, cell_len(prefix)):
            return Legend(lines, prefix, has_values=has_values)
    for count in range(len(entries) - 1, 0, -1):
        lines = _flow(entries[:count], width - len(f"  +{len(entries) - count} more"), 0, True)
        if len(lines) <= most and _fits(lines, width, 0):
            return Legend(lines, hidden=len(entries) - count)
    return Legend([], hidden=len(entries))


def describe_hidden(legend: Legend, width: int) -> str:
    """Return how many lines the legend leaves out; empty if none."""
    if not legend.hidden:
        return ""
    text = f"+{legend.hidden} more" if legend.lines else formatting.plural(legend.hidden, "line")
    return text[:width]


def _shared_word(entries: Sequence[Entry]) -> str:
    """Return the first word of all names that have several, with its space; empty if it differs."""
    words = {each.name.partition(" ")[0] for each in entries if " " in each.name}
    named = [each for each in entries if " " in each.name]
    return f"{words.pop()} " if len(words) == 1 and len(named) > 1 else ""


def _flow(
    entries: Sequence[Entry], width: int, start: int, has_values: bool
) -> list[list[tuple[Entry, int]]]:
    lines: list[list[tuple[Entry, int]]] = [[]]
    used = start
    for entry in entries:
        size = cell_len(f"{entry.shape} {entry.name}") + (1 + entry.room if has_values else 0)
        if lines[-1] and used + size > width:
            lines.append([])
            used = 0
        lines[-1].append((entry, size + GAP))
        used += size + GAP
    return lines


def _fits(lines: Sequence[Sequence[tuple[Entry, int]]], width: int, start: int) -> bool:
    used = [sum(size for _, size in line) - GAP for line in lines]
    used[0] += start
    return max(used) <= width
