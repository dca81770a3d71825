"""Series of rows that are read in O(points), however long they grow: tables and roll-ups.

A series is a raw table, one row per report, counted by `seq` for each key (a rank, a GPU),
and a roll-up table, in which a row of level k stands for 8 neighbours of level k - 1.
`appender.py` writes both; rows that no roll-up stands for yet are read from the levels below.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby, islice
from math import nan
from operator import itemgetter, truediv
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack, get_type_hints

import msgspec

from runners.levels import FACTOR, How, combine, pieces, spans, top

Row = Sequence[Any]
Piece = tuple[int, int, int, int]
"""Rows of one level and key: level, key, first ≤ seq < last."""
Limit = float | Mapping[int, float] | None
T = TypeVar("T", bound=msgspec.Struct)

NEAR = 512  # rows at the end of a curve in which a limit is looked for first
FARTHEST = 1e300  # of a limit: SQL has no infinity

_SQL_TYPES = {int: "INTEGER", bool: "INTEGER", float: "REAL", float | None: "REAL", str: "TEXT"}
AGGREGATE = {
    "sum": "sum({0})",
    "min": "min({0})",
    "max": "max({0})",
    "last": f"max(CASE WHEN seq % {FACTOR} = {FACTOR - 1} THEN {{0}} END)",
}
_MERGED = {**AGGREGATE, "last": "max(CASE WHEN seq = last - 1 THEN {0} END)"}


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
    """How to read curves: the keyword arguments of `Series.curves`."""

    columns: Iterable[str] | None
    points: int
    axis: str | None
    start: Limit
    end: Limit


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
        types = get_type_hints(self.kind)
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
        """Keys that have rows, in order."""
        return list(self.counts(db))

    def counts(self, db: sqlite3.Connection) -> dict[int, int]:
        """How many raw rows each key has, by key in order; DISTINCT would read the whole table."""
        key, name = self.key, self.name
        after = f"SELECT min({key}) FROM {name} WHERE {key} > known.it"
        last = f"SELECT max(seq) FROM {name} WHERE {key} = known.it"
        query = (
            f"WITH RECURSIVE known(it) AS (SELECT min({key}) FROM {name} UNION ALL "
            f"SELECT ({after}) FROM known WHERE it NOTNULL) "
            f"SELECT it, ({last}) + 1 FROM known WHERE it NOTNULL"
        )
        return dict(db.execute(query).fetchall())

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

    def latest(self, db: sqlite3.Connection) -> dict[int, T]:
        """What was said last, by key."""
        last = [(0, key, count - 1, count) for key, count in self.counts(db).items()]
        rows = chain.from_iterable(self._read(db, self.fields, last))
        return {row[1]: self.struct(row[1:]) for row in rows}

    def totals(self, db: sqlite3.Connection) -> dict[int, dict[str, Any]]:
        """Each column over all rows of a key, exact, in O(log n); None where all is missing."""
        names = list(self.columns)
        counts = self.counts(db)
        rows = self._merged(db, names, [(key, 0, count) for key, count in counts.items()])
        return {
            key: dict(zip(names, values, strict=True))
            for key, (_, *values) in zip(counts, rows, strict=True)
        }

    def curve(self, db: sqlite3.Connection, key: int, **how: Unpack[Reading]) -> Curve:
        """One curve of `curves`; without points where the key has no rows."""
        return self.curves(db, [key], **how)[key]

    def curves(
        self,
        db: sqlite3.Connection,
        keys: Iterable[int] | None = None,
        *,
        columns: Iterable[str] | None = None,
        points: int = 2000,
        axis: str | None = None,
        start: Limit = None,
        end: Limit = None,
    ) -> dict[int, Curve]:
        """At most `points` points of each key over rows with start ≤ axis ≤ end (axis: the first
        of `axes`; limits may be other ones for each key).

        The finest level that fits is taken, so there are over `points` / 8 where there are as
        many rows. Rows at both edges that fill no whole roll-up make one point each: sums over
        the curve equal sums over the raw rows. As many queries whatever the number of keys.
        """
        wanted = list(dict.fromkeys([*self.axes, *(self.names if columns is None else columns)]))
        stored = list(dict.fromkeys(part for name in wanted for part in self._parts(name)))
        counts = self.counts(db) if keys is None else {key: self.count(db, key) for key in keys}
        between = self.between(db, counts, axis or self.axes[0], start, end)
        levels = {key: spans(*edges, max(points, 2)) for key, edges in between.items()}
        # Whole rows and those that are merged into one, each in the order of the parts.
        parts = [(key, level, part) for key, (level, found) in levels.items() for part in found]
        whole = [(level, key, low, high) for key, level, (is_whole, low, high) in parts if is_whole]
        edges = [(key, low, high) for key, _, (is_whole, low, high) in parts if not is_whole]
        read, merged = iter(self._read(db, stored, whole)), iter(self._merged(db, stored, edges))
        rows: dict[int, list[Row]] = {key: [] for key in levels}
        for key, _, (is_whole, *_) in parts:
            rows[key] += next(read) if is_whole else [next(merged)]
        return {
            key: self._curve(wanted, stored, rows[key], FACTOR**level)
            for key, (level, _) in levels.items()
        }

    def _curve(self, wanted: list[str], stored: list[str], rows: list[Row], stride: int) -> Curve:
        columns = zip(*rows, strict=True)
        next(columns, None)  # the numbers of the pieces
        data = dict(zip(stored, columns, strict=True)) if rows else {}
        return Curve({name: self._column(name, data) for name in wanted}, stride)

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
        self, db: sqlite3.Connection, counts: dict[int, int], axis: str, start: Limit, end: Limit
    ) -> dict[int, tuple[int, int]]:
        """The range of seq of each key."""
        low = self._places(db, counts, axis, start, "<") if start is not None else {}
        high = self._places(db, counts, axis, end, "<=") if end is not None else counts
        edges = {key: (low.get(key, 0), high[key]) for key in counts}
        return {key: (low, max(low, high)) for key, (low, high) in edges.items()}

    def _places(
        self, db: sqlite3.Connection, counts: dict[int, int], axis: str, limit: Limit, before: str
    ) -> dict[int, int]:
        """The first seq of each key that is not `before` (< or <=) its limit, as axes only rise."""
        limits = limit if isinstance(limit, Mapping) else dict.fromkeys(counts, limit or 0.0)
        ranges = {key: (max(0, count - NEAR), count) for key, count in counts.items()}
        found = self._last_before(db, axis, limits, before, ranges)
        edges = {
            key: (0, ranges[key][0]) if seq is None else (seq + 1, seq + 1)
            for key, seq in found.items()
        }
        # What lies further back is looked for by bisection, in all keys at once.
        while left := [
            (key, (low + high) // 2) for key, (low, high) in edges.items() if low < high
        ]:
            one = {key: (middle, middle + 1) for key, middle in left}
            for key, seq in self._last_before(db, axis, limits, before, one).items():
                low, high = edges[key]
                edges[key] = (low, one[key][0]) if seq is None else (seq + 1, high)
        return {key: low for key, (low, _) in edges.items()}

    def _last_before(
        self,
        db: sqlite3.Connection,
        axis: str,
        limits: Mapping[int, float],
        before: str,
        ranges: Mapping[int, tuple[int, int]],
    ) -> dict[int, int | None]:
        """The last seq of a range of each key that is `before` its limit, from the end on."""
        marks = ", ".join(
            f"({key}, {low}, {high}, {min(max(limits[key], -FARTHEST), FARTHEST)!r})"
            for key, (low, high) in ranges.items()
        )
        if not marks:
            return {}
        last = (
            f"SELECT seq FROM {self.name} WHERE {self.key} = one AND seq >= low AND seq < high "
            f"AND {axis} {before} edge ORDER BY seq DESC LIMIT 1"
        )
        query = (
            f"WITH range(one, low, high, edge) AS (VALUES {marks}) SELECT one, ({last}) FROM range"
        )
        return dict(db.execute(query).fetchall())

    def _read(
        self,
        db: sqlite3.Connection,
        names: list[str],
        pieces: Sequence[Piece],
        merged: bool = False,
    ) -> Iterator[list[Row]]:
        """The rows of each piece in order, each with the piece's number before it, or one row
        that is `merged` of them; one query for each level, however many keys there are.
        """
        found: list[list[Row]] = [[] for _ in pieces]
        for level in sorted({piece[0] for piece in pieces}):
            values, table = self.source(level, names)
            if merged:
                hows = [_MERGED[self.columns[name].how] for name in names]
                values = [how.format(value) for how, value in zip(hows, values, strict=True)]
            marks = ", ".join(
                f"({number}, {key}, {low}, {high})"
                for number, (of, key, low, high) in enumerate(pieces)
                if of == level
            )
            # CROSS JOIN keeps the order: piece by piece, each along the table's primary key.
            query = (
                f"WITH piece(number, one, first, last) AS (VALUES {marks}) "
                f"SELECT number, {', '.join(values)} FROM piece CROSS JOIN {table} "
                f"{self.key} = one AND seq >= first AND seq < last"
                f"{' GROUP BY number' if merged else ''}"
            )
            rows = db.execute(query, (level,) if level else ()).fetchall()
            for number, same in groupby(rows, itemgetter(0)):
                found[number] = list(same)
        return iter(found)

    def source(self, level: int, names: Iterable[str]) -> tuple[list[str], str]:
        """SQL of columns at a level, and of their rows, to go on with key and range: bind level
        where it is above 0.
        """
        if level == 0:
            return [
                self.columns[name].raw or name if name in self.columns else name for name in names
            ], f"{self.name} WHERE"
        return list(names), f"{self.name}_rollup WHERE level = ? AND"

    def _merged(
        self, db: sqlite3.Connection, names: list[str], ranges: Sequence[tuple[int, int, int]]
    ) -> Iterator[Row]:
        """Raw rows low ≤ seq < high of a key (key, low, high) as one row, of as few stored rows as
        possible; rows are as of `_read`.
        """
        split = [list(pieces(low, high, top(high - low))) for _, low, high in ranges]
        wanted = [
            (level, key, first, last)
            for (key, *_), found in zip(ranges, split, strict=True)
            for level, first, last in found
        ]
        read = self._read(db, names, wanted, merged=True)
        hows = [self.columns[name].how for name in names]
        for found in split:
            rows = chain.from_iterable(islice(read, len(found)))
            columns = list(zip(*rows, strict=True))[1:] or [()] * len(names)
            yield (0, *map(combine, hows, columns))
