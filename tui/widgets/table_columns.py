"""Columns of text tables, and which of them fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from rich.text import Text

_WORDS = re.compile(r"(?:[^,./\s]|\.(?=\d))+|.")  # "ddp,train.lr=0.1" has ddp , train . lr=0.1


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


def tell_apart(names: Sequence[str], width: int) -> list[str]:
    """Return the names, without the words that begin and end all of them if one is too long."""
    if len(names) < 2 or max(map(len, names)) <= width:
        return list(names)
    words = [_WORDS.findall(name) for name in names]
    own = min(map(len, words)) - 1  # so that one word stays
    first = min(_count_common(words), own)
    last = min(_count_common([each[::-1] for each in words]), own - first)
    return [
        ("…" if first else "") + "".join(each[first : len(each) - last]) + ("…" if last else "")
        for each in words
    ]


def _count_common(lists: Sequence[Sequence[str]]) -> int:
    """Return how many words all lists begin with."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*lists, strict=False)))
