"""What the palette lists."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from distrain.tui.data import fuzzy


class PaletteEntry(NamedTuple):
    """An entry. `obstacle` says why it cannot be chosen now; `words` find it too."""

    id: str
    group: str
    label: str
    help: str
    keys: str = ""
    obstacle: str = ""
    words: str = ""


class PaletteLine(NamedTuple):
    """A line of the list: an entry, or the heading of a group."""

    entry: PaletteEntry | None
    heading: str = ""


def find_lines(entries: Sequence[PaletteEntry], query: str) -> list[PaletteLine]:
    """Return all entries below the headings of their groups, or those that match a query."""
    if query.strip():
        found = fuzzy.search(entries, query, lambda entry: entry.label, _description)
        possible = [entry for entry in found if not entry.obstacle]
        return [
            PaletteLine(entry) for entry in (*possible, *(each for each in found if each.obstacle))
        ]
    lines = []
    for group, members in groupby(entries, lambda entry: entry.group):
        lines.append(PaletteLine(None, group))
        lines += [PaletteLine(entry) for entry in members]
    return lines


def _description(entry: PaletteEntry) -> str:
    return f"{entry.group} {entry.help} {entry.words} {entry.id}"
