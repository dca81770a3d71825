"""Writing a series: raw rows and the roll-ups that they complete, and discarding rows.

Roll-ups are computed by SQL in the same transaction as their rows, so the two agree even after
the process is killed. The tables are defined in `rollup`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Generic

import msgspec

from distrain.runners.records.timeseries.bounds import find_rows_between
from distrain.runners.records.timeseries.levels import FACTOR, highest_level
from distrain.runners.records.timeseries.rollup import AGGREGATE_SQL, Row, Series, T
from distrain.runners.records.timeseries.rows import count_rows


class Appender(Generic[T]):
    """Writes one series. Transactions are the caller's."""

    def __init__(self, series: Series[T]) -> None:
        self.series = series
        self._counts: dict[int, int] = {}
        has_key = series.key in series.kind.__struct_fields__
        self._key = attrgetter(series.key) if has_key else lambda _: 0
        self._values = attrgetter(*series.fields[1:])
        self._nested = [series.fields.index(name) for name in series.nested]
        columns = [*series.fields, "seq"]
        marks = ", ".join("?" * len(columns))
        self._insert = f"INSERT INTO {series.name} ({', '.join(columns)}) VALUES ({marks})"
        self._roll_up_raw = _roll_up_sql(series, 0)
        self._roll_up_rollups = _roll_up_sql(series, 1)

    def append(self, db: sqlite3.Connection, items: Iterable[T]) -> None:
        """Insert `items`; those of one key stay in their order of arrival."""
        before = self._counts
        self._counts = dict(before)
        db.executemany(self._insert, self._rows(items, self._counts))
        ranges = [(key, before.get(key, 0), count) for key, count in self._counts.items()]
        ranges = [(key, first, last) for key, first, last in ranges if first < last]
        self._roll_up(db, ranges)

    def _roll_up(self, db: sqlite3.Connection, ranges: list[tuple[int, int, int]]) -> None:
        """Add the roll-ups that new raw rows (key, first, last) complete, level by level."""
        level = 0
        while ranges := [
            (key, first // FACTOR, last // FACTOR) for key, first, last in ranges if last >= FACTOR
        ]:
            level += 1
            source_level = (level - 1,) if level > 1 else ()
            groups = [
                (level, key, seq, *source_level, key, seq * FACTOR, (seq + 1) * FACTOR)
                for key, first, last in ranges
                for seq in range(first, last)
            ]
            db.executemany(self._roll_up_rollups if level > 1 else self._roll_up_raw, groups)

    def discard(self, db: sqlite3.Connection, axis: str, end: float | Mapping[int, float]) -> None:
        """Delete rows beyond `end` of an axis, and the roll-ups that cover any of them.

        `end` is that of all keys, or of each key whose rows may be deleted.
        """
        name = self.series.name
        key = self.series.key
        counts = count_rows(db, self.series)
        if isinstance(end, Mapping):
            counts = {each: count for each, count in counts.items() if each in end}
        ranges = find_rows_between(db, self.series, counts, axis, None, end)
        for value, (_, kept) in ranges.items():
            db.execute(f"DELETE FROM {name} WHERE {key} = ? AND seq >= ?", (value, kept))
            for level in range(1, highest_level(counts[value]) + 1):
                db.execute(
                    f"DELETE FROM {name}_rollup WHERE level = ? AND {key} = ? AND seq >= ?",
                    (level, value, kept // FACTOR**level),
                )
        self.recount(db)

    def recount(self, db: sqlite3.Connection) -> None:
        """Read the row counts from the tables, after rows were deleted or rolled back."""
        self._counts = count_rows(db, self.series)

    def roll_up_again(self, db: sqlite3.Connection) -> None:
        """Compute all roll-ups of a table that has none."""
        self.recount(db)
        self._roll_up(db, [(key, 0, count) for key, count in self._counts.items()])

    def _rows(self, items: Iterable[T], counts: dict[int, int]) -> Iterator[Row]:
        # Sorted by key as in the table: with many ranks each page is then written only once.
        for key, items_of_key in groupby(sorted(items, key=self._key), self._key):
            seq = counts.get(key, 0)
            for item in items_of_key:
                values = self._values(item)
                yield (key, *(self._encode_nested(values) if self._nested else values), seq)
                seq += 1
            counts[key] = seq

    def _encode_nested(self, values: Row) -> Row:
        return [
            msgspec.json.encode(value).decode() if index in self._nested else value
            for index, value in enumerate(values, 1)
        ]


def _roll_up_sql(series: Series[T], level: int) -> str:
    """Return SQL that makes one row of the level above `level`.

    Its parameters are level + 1, key and seq of the new row, then those of `Series.source`, then
    key, first and last seq of the rows that it summarises.
    """
    values, source = series.source(level, series.columns)
    aggregates = [
        AGGREGATE_SQL[column.how].format(value)
        for column, value in zip(series.columns.values(), values, strict=True)
    ]
    return (
        f"INSERT INTO {series.name}_rollup (level, {series.key}, seq, {', '.join(series.columns)}) "
        f"SELECT ?, ?, ?, {', '.join(aggregates)} "
        f"FROM {source} {series.key} = ? AND seq >= ? AND seq < ?"
    )
