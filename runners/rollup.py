"""Series of rows that are read in O(points), however long they grow: tables and roll-ups.

A series is a raw table, one row per report, counted by `seq` for each key (a rank, a GPU),
and a roll-up table, in which a row of level k stands for 8 neighbours of level k - 1.
Roll-ups are written by SQL in the transaction of their rows: after a kill at any moment the
two agree, and rows that no roll-up stands for yet are read from the levels below.
"""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from math import nan
from operator import attrgetter, truediv
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec

from runners.levels import FACTOR, How, combine, pieces, spans, top

Row = Sequence[Any]
T = TypeVar("T", bound=msgspec.Struct)

_SQL_TYPES = {int: "INTEGER", bool: "INTEGER", float: "REAL", float | None: "REAL", str: "TEXT"}
_AGGREGATE = {
    "sum": "sum({0})",
    "min": "min({0})",
    "max": "max({0})",
    "last": f"max(CASE WHEN seq % {FACTOR} = {FACTOR - 1} THEN {{0}} END)",
}


class Column(NamedTuple):
    """A column of a roll-up; `raw` is its value for one raw row, in SQL (default: its name)."""

    name: str
    how: How = "sum"
    raw: str = ""


class Curve:
    """Columns of equal length for plotting, NaN where something is missing.

    `stride` is how many raw rows a point stands for; the first and last may stand for fewer.
    """

    __slots__ = ("columns", "stride")

    def __init__(self, columns: dict[str, array[float]], stride: int = 1) -> None:
        self.columns = columns
        self.stride = stride

    def __getitem__(self, name: str) -> array[float]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


class Reading(TypedDict, total=False):
    """How to read a curve: the keyword arguments of `Series.curve`."""

    columns: Iterable[str] | None
    points: int
    axis: str | None
    start: float | None
    end: float | None


class Series(Generic[T]):
    """A kind of row: how structs of type `kind` are stored, rolled up and read.

    `key` tells one curve from another; where `kind` has no such field there is one curve, 0.
    `axes` never fall along a curve, so they can bound a read; every read includes them.
    `ratios` are columns made on reading, numerator and denominator, so that a mean is weighted
    rightly at every level. Missing (None, NaN) values are left out of all aggregates.
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        key: str,
        axes: tuple[str, ...],
        columns: Iterable[Column],
        ratios: dict[str, tuple[str, str]],
    ) -> None:
        self.name, self.kind, self.key = name, kind, key
        self.axes, self.ratios = axes, ratios
        self.columns = {axis: Column(axis, "max") for axis in axes}
        self.columns |= {column.name: column for column in columns}

    @property
    def names(self) -> list[str]:
        """Every column that a read can ask for."""
        return [*self.columns, *self.ratios]

    @cached_property
    def fields(self) -> list[str]:
        """The columns of the raw table beside `seq`: the key, then the struct's order."""
        return [self.key, *(name for name in self.kind.__struct_fields__ if name != self.key)]

    @cached_property
    def nested(self) -> list[str]:
        """Fields that are kept as JSON."""
        return [name for name, kind in self._types.items() if kind not in _SQL_TYPES]

    @cached_property
    def _types(self) -> dict[str, Any]:
        types = {field.name: field.type for field in msgspec.structs.fields(self.kind)}
        return {name: types.get(name, int) for name in self.fields}

    def schema(self) -> list[str]:
        """The statements that make the two tables."""
        types = self._types
        raw = ", ".join(f"{name} {_SQL_TYPES.get(types[name], 'TEXT')}" for name in self.fields)
        return [
            f"CREATE TABLE {self.name} ({raw}, seq INTEGER, PRIMARY KEY ({self.key}, seq)) "
            "WITHOUT ROWID",
            f"CREATE TABLE {self.name}_rollup (level INTEGER, {self.key} INTEGER, seq INTEGER, "
            f"{', '.join(self.columns)}, PRIMARY KEY (level, {self.key}, seq)) WITHOUT ROWID",
        ]

    # --- reading ------------------------------------------------------------------------------

    def keys(self, db: sqlite3.Connection) -> list[int]:
        """Keys that have rows, in order; a seek each, for DISTINCT would read the whole table."""
        found: list[int] = []
        query = f"SELECT min({self.key}) FROM {self.name} WHERE {self.key} > ?"
        while (key := db.execute(query, (found[-1] if found else -1,)).fetchone()[0]) is not None:
            found.append(key)
        return found

    def count(self, db: sqlite3.Connection, key: int) -> int:
        """How many raw rows there are."""
        query = f"SELECT max(seq) FROM {self.name} WHERE {self.key} = ?"
        last: int | None = db.execute(query, (key,)).fetchone()[0]
        return 0 if last is None else last + 1

    def raw(
        self, db: sqlite3.Connection, key: int, after: int = -1, chunk: int = 1000
    ) -> Iterator[Row]:
        """Raw rows in the order of `fields`, from `seq` > `after`.

        Reads by chunks, so that a slow consumer never holds up the writer's checkpoints.
        """
        query = (
            f"SELECT {', '.join(self.fields)}, seq FROM {self.name} "
            f"WHERE {self.key} = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        while rows := db.execute(query, (key, after, chunk)).fetchall():
            after = rows[-1][-1]
            for row in rows:
                yield row[:-1]

    def struct(self, row: Row) -> T:
        """What a raw row was made of."""
        values = dict(zip(self.fields, row, strict=True))
        for name in self.nested:
            values[name] = msgspec.json.decode(values[name])
        return msgspec.convert(values, self.kind, strict=False)

    def latest(self, db: sqlite3.Connection, key: int) -> T | None:
        """What was said last."""
        last = self.count(db, key) - 1
        return next((self.struct(row) for row in self.raw(db, key, last - 1)), None)

    def totals(self, db: sqlite3.Connection, key: int) -> dict[str, Any]:
        """Each column over all rows, exact, in O(log n); None where all is missing."""
        names = list(self.columns)
        merged = self._merged(db, key, names, 0, self.count(db, key))
        return dict(zip(names, merged, strict=True))

    def curve(
        self,
        db: sqlite3.Connection,
        key: int,
        columns: Iterable[str] | None = None,
        *,
        points: int = 2000,
        axis: str | None = None,
        start: float | None = None,
        end: float | None = None,
    ) -> Curve:
        """At most `points` points over rows with start ≤ axis ≤ end (axis: the first of `axes`).

        The finest level that fits is taken, so there are over `points` / 8 where there are as
        many rows. Rows at both edges that fill no whole roll-up make one point each: sums over
        the curve equal sums over the raw rows.
        """
        wanted = list(dict.fromkeys([*self.axes, *(self.names if columns is None else columns)]))
        stored = list(dict.fromkeys(part for name in wanted for part in self._parts(name)))
        low, high = self.between(db, key, axis or self.axes[0], start, end)
        level, parts = spans(low, high, max(points, 2))
        rows: list[Row] = []
        for whole, first, last in parts:
            if whole:
                rows += self._read(db, key, stored, level, first, last)
            else:
                rows.append(self._merged(db, key, stored, first, last))
        data = dict(zip(stored, zip(*rows, strict=True), strict=True)) if rows else {}
        return Curve({name: self._column(name, data) for name in wanted}, FACTOR**level)

    def _parts(self, name: str) -> tuple[str, ...]:
        return self.ratios.get(name) or (name,)

    def _column(self, name: str, data: dict[str, tuple[Any, ...]]) -> array[float]:
        if not data:
            return array("d")
        try:
            if name in self.ratios:
                return array("d", map(truediv, *(data[part] for part in self.ratios[name])))
            return array("d", data[name])
        except (TypeError, ZeroDivisionError):
            return array("d", map(self._value, *(data[part] for part in self._parts(name))))

    @staticmethod
    def _value(above: float | None, below: float | None = 1) -> float:
        return above / below if above is not None and below else nan

    def between(
        self, db: sqlite3.Connection, key: int, axis: str, start: float | None, end: float | None
    ) -> tuple[int, int]:
        """The range of seq; found by bisection, as axes only rise."""
        query = f"SELECT {axis} FROM {self.name} WHERE {self.key} = ? AND seq = ?"

        def value(seq: int) -> float:
            found: float = db.execute(query, (key, seq)).fetchone()[0]
            return found

        seqs = range(self.count(db, key))
        low = 0 if start is None else bisect_left(seqs, start, key=value)
        high = len(seqs) if end is None else bisect_right(seqs, end, lo=low, key=value)
        return low, high

    def _read(
        self, db: sqlite3.Connection, key: int, names: list[str], level: int, low: int, high: int
    ) -> list[Row]:
        values, source = self.source(level, names)
        query = f"SELECT {', '.join(values)} FROM {source} ORDER BY seq"
        return db.execute(query, (*[level] * (level > 0), key, low, high)).fetchall()

    def source(self, level: int, names: Iterable[str]) -> tuple[list[str], str]:
        """SQL of columns at a level, and of their rows: bind level (above 0), key, low, high."""
        where = f"{self.key} = ? AND seq >= ? AND seq < ?"
        if level == 0:
            return [self.columns[name].raw or name for name in names], f"{self.name} WHERE {where}"
        return list(names), f"{self.name}_rollup WHERE level = ? AND {where}"

    def _merged(
        self, db: sqlite3.Connection, key: int, names: list[str], low: int, high: int
    ) -> Row:
        """Raw rows low ≤ seq < high as one row, of as few stored rows as possible."""
        rows: list[Row] = []
        for level, first, last in pieces(low, high, top(high - low)):
            rows += self._read(db, key, names, level, first, last)
        columns = zip(*rows, strict=True) if rows else ((),) * len(names)
        return [
            combine(self.columns[name].how, values)
            for name, values in zip(names, columns, strict=True)
        ]


class Appender(Generic[T]):
    """Writes rows of one series and the roll-ups that they fill. Transactions are the caller's."""

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
        for value in self.series.keys(db):
            rows = self.series.count(db, value)
            _, kept = self.series.between(db, value, axis, None, end)
            db.execute(f"DELETE FROM {name} WHERE {key} = ? AND seq >= ?", (value, kept))
            for level in range(1, top(rows) + 1):
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
        _AGGREGATE[column.how].format(value)
        for column, value in zip(series.columns.values(), values, strict=True)
    ]
    return f"INSERT INTO {series.name}_rollup SELECT ?, ?, ?, {', '.join(sums)} FROM {source}"
