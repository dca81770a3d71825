"""Columns of text tables, and which of them fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text


class TableColumn(NamedTuple):
    """A column. Where room is short, those with the highest `spare` are left out first; 0 stays."""

    name: str
    width: int
    spare: int = 0
    right: bool = True


def columns_that_fit(columns: Sequence[TableColumn], room: int) -> list[TableColumn]:
    """Return the columns that fit into `room` cells, each with a gap of one cell."""
    kept = list(columns)
    for spare in range(max(column.spare for column in columns), 0, -1):
        if total_width(kept) <= room:
            break
        kept = [column for column in kept if column.spare != spare]
    return kept


def total_width(columns: Sequence[TableColumn]) -> int:
    """Return the width of the columns in cells, each with a gap of one cell."""
    return sum(column.width + 1 for column in columns)


def align(text: Text, column: TableColumn) -> Text:
    """Return a text cut or padded to the width of the column."""
    text = text.copy()
    text.truncate(column.width, overflow="ellipsis")
    room = column.width - text.cell_len
    if column.right:
        text.pad_left(room)
    else:
        text.pad_right(room)
    return text
