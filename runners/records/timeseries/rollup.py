"""Series and their tables: raw rows, and roll-ups that make them readable in O(points).

A series has a raw table, one row per report, numbered by `seq` for each key (a rank, a GPU), and
a roll-up table, in which a row of level k summarises 8 consecutive rows of level k - 1.
`appender` writes both, `rows` and `curves` read them. Rows that no roll-up covers yet are read
from the levels below.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import inf, isfinite
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec

from distrain.runners import formatting
from distrain.runners.protocol.events import Int
from distrain.runners.records.timeseries.levels import FACTOR, Aggregate

Row = Sequence[Any]
T = TypeVar("T", bound=msgspec.Struct)

_SQL_TYPES = {int: "INTEGER", bool: "INTEGER", float: "REAL", float | None: "REAL", str: "TEXT"}
AGGREGATE_SQL = {
    "sum": "sum({0})",
    "min": "min({0})",
    "max": "max({0})",
    "last": f"max(CASE WHEN seq % {FACTOR} = {FACTOR - 1} THEN {{0}} END)",
}


class RollupColumn(NamedTuple):
    """A column of a roll-up; `raw` is its value for one raw row, in SQL (default: its name)."""

    name: str
    how: Aggregate = "sum"
    raw: str = ""


class Series(Generic[T]):
    """A kind of row: how structs of type `kind` are stored and rolled up.

    `key` is the field that separates the curves; where `kind` has no such field there is one
    curve, 0. `axes` never decrease along a curve, so they can bound a read; every read includes
    them. `ratios` are columns computed on reading, as numerator and denominator, so that a mean
    has the right weights at every level. Missing (None, NaN) values are left out of all
    aggregates.
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        key: str,
        axes: tuple[str, ...],
        columns: Iterable[RollupColumn],
        ratios: dict[str, tuple[str, str]],
    ) -> None:
        self.name = name
        self.kind = kind
        self.key = key
        self.axes = axes
        self.ratios = ratios
        self.columns = {axis: RollupColumn(axis, "max") for axis in axes}
        self.columns |= {column.name: column for column in columns}

    @property
    def names(self) -> list[str]:
        """Every column that a read can ask for."""
        return [*self.columns, *self.ratios]

    @cached_property
    def fields(self) -> list[str]:
        """The columns of the raw table except `seq`: the key, then the struct's fields in order."""
        return [self.key, *(name for name in self.kind.__struct_fields__ if name != self.key)]

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the struct's fields; every opening of a record asks for them."""
        return {field.name: field.default for field in msgspec.structs.fields(self.kind)}

    @cached_property
    def nested(self) -> list[str]:
        """The fields that are stored as JSON."""
        return [name for name, kind in self._types.items() if kind not in _SQL_TYPES]

    @cached_property
    def _texts(self) -> list[str]:
        return [name for name, kind in self._types.items() if kind is str]

    @cached_property
    def required(self) -> frozenset[str]:
        """The sums and axes to which every row adds a value."""
        fields = {name for name, kind in self._types.items() if kind in (int, float)}
        return frozenset(
            column.name
            for column in self.columns.values()
            if column.name in self.axes
            or (column.how == "sum" and (column.raw or column.name) not in self.fields)
            or (column.how == "sum" and (column.raw or column.name) in fields)
        )

    @cached_property
    def _row_types(self) -> Any:
        """The type of raw rows: booleans are stored as integers, nested values as text."""
        stored = {int: Int, bool: Int, float: float, float | None: float | None}
        types = tuple(stored.get(kind, str) for kind in self._types.values())
        return list[tuple[types]]  # type: ignore[valid-type]

    @cached_property
    def _types(self) -> dict[str, Any]:
        types = get_type_hints(self.kind)
        return {name: types.get(name, int) for name in self.fields}

    def schema(self) -> list[str]:
        """Return the statements that create the two tables."""
        types = self._types
        raw = ", ".join(f"{name} {_SQL_TYPES.get(types[name], 'TEXT')}" for name in self.fields)
        return [
            f"CREATE TABLE {self.name} ({raw}, seq INTEGER, PRIMARY KEY ({self.key}, seq)) "
            "WITHOUT ROWID",
            f"CREATE TABLE {self.name}_rollup (level INTEGER, {self.key} INTEGER, seq INTEGER, "
            f"{', '.join(self.columns)}, PRIMARY KEY (level, {self.key}, seq)) WITHOUT ROWID",
        ]

    def struct(self, row: Row) -> T:
        """Return the struct that a raw row, with values in the order of `fields`, was made of.

        Its texts are printable. Raises sqlite3.DataError for values of other types.
        """
        values = dict(zip(self.fields, row, strict=True))
        try:
            for name in self.nested:
                values[name] = msgspec.json.decode(values[name])
            for name in self._texts:
                values[name] = formatting.printable(values[name])
            return msgspec.convert(values, self.kind, strict=False)
        except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError) as error:
            raise sqlite3.DataError(f"a row of {self.name}: {error}") from None

    def check_raw(self, rows: Sequence[Row]) -> None:
        """Raise sqlite3.DataError for rows, as `struct` takes them, with values of other types."""
        try:
            msgspec.convert(rows, self._row_types)
        except msgspec.ValidationError as error:
            raise sqlite3.DataError(f"a row of {self.name}: {error}") from None

    def drop_overflows(self, columns: dict[str, Sequence[Any]]) -> None:
        """Make sums that are too large for a float missing, in place, as if nothing was counted.

        Each value of a row is finite. What every row adds to cannot grow so large.
        """
        for total, count in self.ratios.values():
            totals = columns.get(total, ())
            if total in self.required or not (inf in totals or -inf in totals):
                continue
            kept = [value not in (inf, -inf) for value in totals]
            columns[total] = [v if keep else None for v, keep in zip(totals, kept, strict=True)]
            if count in columns:
                counts = zip(columns[count], kept, strict=True)
                columns[count] = [number if keep else 0 for number, keep in counts]

    def check_merged(self, values: Mapping[str, Any]) -> None:
        """Raise sqlite3.DataError for aggregates of all rows that are no numbers or are missing."""
        for name, value in values.items():
            if value is None and name not in self.required:
                continue
            if not isinstance(value, int | float) or not isfinite(value):
                raise sqlite3.DataError(f"{name} of {self.name} is no number")

    def stored_parts(self, name: str) -> tuple[str, ...]:
        """Return the stored columns that a column is computed from: itself, or a ratio's two."""
        return self.ratios.get(name) or (name,)

    def source(self, level: int, names: Iterable[str]) -> tuple[list[str], str]:
        """Return the SQL of columns at a level, and of their rows up to and including "WHERE".

        The caller adds conditions for key and seq. Above level 0 the first parameter is the level.
        """
        if level == 0:
            return [self._raw_value(name) for name in names], f"{self.name} WHERE"
        return list(names), f"{self.name}_rollup WHERE level = ? AND"

    def _raw_value(self, name: str) -> str:
        column = self.columns.get(name)
        return column.raw or name if column else name
