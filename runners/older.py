"""Databases of older versions: what they lack is given to readers with its default."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from runners.rollup import Series


def fill_in(db: sqlite3.Connection, series: Series[Any]) -> None:
    """Columns that came after a series was written, by views of this connection alone.

    A field that was not measured reads as its default, a sum of such as 0, anything else as NULL.
    """
    _complete(db, series.name, {name: _default(series, name) for name in series.fields})
    sums = {name: 0 if column.how == "sum" else "NULL" for name, column in series.columns.items()}
    _complete(db, f"{series.name}_rollup", sums)


def _default(series: Series[Any], name: str) -> Any:
    fields = {field.name: field.default for field in msgspec.structs.fields(series.kind)}
    value = fields.get(name)
    return value if isinstance(value, int | float) else "NULL"


def _complete(db: sqlite3.Connection, table: str, wanted: dict[str, Any]) -> None:
    there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    lacking = [f"{value} AS {name}" for name, value in wanted.items() if name not in there]
    if there and lacking:
        db.execute("PRAGMA temp_store = MEMORY")
        columns = ", ".join(["*", *lacking])
        db.execute(f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table}")
