"""Rows of a series and the roll-ups that they fill: how they are written, and taken back.

Roll-ups are written by SQL in the transaction of their rows: after a kill at any moment the two
agree.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Generic

import msgspec

from runners.levels import FACTOR, top
from runners.rollup import AGGREGATE, Row, Series, T


class Appender(Generic[T]):
    """Writes one series. Transactions are the caller's."""

    def __init__(self, series: Series[T]) -> None:
        self.series = series
        self._counts: dict[int, int] = {}
        keyed = series.key in series.kind.__struct_fields__
        self._key = attrgetter(series.key) if keyed else lambda _: 0
        self._values = attrgetter(*series.fields[1:])
        self._nested = [series.fields.index(name) for name in series.nested]
        columns = [*series.fields, "seq"]
        marks = ", ".join("?" * len(columns))
        self._insert = f"INSERT INTO {series.name} ({', '.join(columns)}) VALUES ({marks})"
        self._roll = [_roll(series, 0), _roll(series, 1)]

    def append(self, db: sqlite3.Connection, items: Iterable[T]) -> None:
        """Insert `items`, those of each key in their order of arrival."""
        before = self._counts
        self._counts = counts = dict(before)
        db.executemany(self._insert, self._rows(items, counts))
        grown = [(key, before.get(key, 0), now) for key, now in counts.items()]
        grown = [growth for growth in grown if growth[1] < growth[2]]
        level = 0
        while grown := [(key, a // FACTOR, b // FACTOR) for key, a, b in grown if b >= FACTOR]:
            level += 1
            below = (level - 1,) if level > 1 else ()
            groups = [
                (level, key, seq, *below, key, seq * FACTOR, (seq + 1) * FACTOR)
                for key, first, last in grown
                for seq in range(first, last)
            ]
            db.executemany(self._roll[level > 1], groups)

    def take_back(self, db: sqlite3.Connection, axis: str, end: float) -> None:
        """Delete all rows beyond `end` of an axis, and the roll-ups that stand for any of them."""
        name, key = self.series.name, self.series.key
        counts = self.series.counts(db)
        for value, (_, kept) in self.series.between(db, counts, axis, None, end).items():
            db.execute(f"DELETE FROM {name} WHERE {key} = ? AND seq >= ?", (value, kept))
            for level in range(1, top(counts[value]) + 1):
                db.execute(
                    f"DELETE FROM {name}_rollup WHERE level = ? AND {key} = ? AND seq >= ?",
                    (level, value, kept // FACTOR**level),
                )
        self.recount(db)

    def recount(self, db: sqlite3.Connection) -> None:
        """Take the counts from the tables, after rows were deleted or rolled back."""
        self._counts = {key: self.series.count(db, key) for key in self.series.keys(db)}

    def _rows(self, items: Iterable[T], counts: dict[int, int]) -> Iterator[Row]:
        # By key, as they lie in the table: with many ranks each page is then touched once.
        for key, same in groupby(sorted(items, key=self._key), self._key):
            seq = counts.get(key, 0)
            for item in same:
                values = self._values(item)
                yield (key, *(self._plain(values) if self._nested else values), seq)
                seq += 1
            counts[key] = seq

    def _plain(self, values: Row) -> Row:
        return [
            msgspec.json.encode(value).decode() if index in self._nested else value
            for index, value in enumerate(values, 1)
        ]


def _roll(series: Series[T], level: int) -> str:
    """SQL that makes one row of the level above: bind level + 1, key, seq, then `source`'s."""
    values, source = series.source(level, series.columns)
    sums = [
        AGGREGATE[column.how].format(value)
        for column, value in zip(series.columns.values(), values, strict=True)
    ]
    where = f"{series.key} = ? AND seq >= ? AND seq < ?"
    return (
        f"INSERT INTO {series.name}_rollup SELECT ?, ?, ?, {', '.join(sums)} FROM {source} {where}"
    )
