"""Columns of the tables: those that there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text


class Column(NamedTuple):
    """`spare` columns go first where room is short, the highest first."""

    name: str
    width: int
    spare: int = 0
    right: bool = True


def fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """The columns for which there is room, each with a cell beside it."""
    kept = list(columns)
    for spare in range(max(column.spare for column in columns), 0, -1):
        if taken(kept) <= room:
            break
        kept = [column for column in kept if column.spare != spare]
    return kept


def taken(columns: Sequence[Column]) -> int:
    """The cells of the columns, each with a cell beside it."""
    return sum(column.width + 1 for column in columns)


def aligned(text: Text, column: Column) -> Text:
    """A cell's text, cut or filled up to the column's width."""
    text = text.copy()
    text.truncate(column.width, overflow="ellipsis")
    room = " " * (column.width - text.cell_len)
    return Text.assemble(room, text) if column.right else Text.assemble(text, room)
