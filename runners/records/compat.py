"""Compatibility: databases of older versions are read as if they had today's columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from distrain.runners.records.timeseries.rollup import Series


def add_missing_columns(db: sqlite3.Connection, series: Series[Any]) -> None:
    """Add the columns that a series' tables lack, as temporary views of this connection.

    A field that was not recorded reads as its default, its sum as 0, anything else as NULL. The
    file is not changed.
    """
    for table, defaults in _defaults(series).items():
        existing, missing = _compare(db, table, defaults)
        if not existing:
            _add_empty(db, table, ["level", "seq", *defaults])
        elif missing:
            db.execute("PRAGMA temp_store = MEMORY")
            columns = ", ".join(["*", *(f"{missing[name]} AS {name}" for name in missing)])
            db.execute(f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table}")


def store_missing_columns(db: sqlite3.Connection, series: Series[Any]) -> None:
    """Add the columns that a series' tables lack to the file, for its writer."""
    for table, defaults in _defaults(series).items():
        for name, value in _compare(db, table, defaults)[1].items():
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} DEFAULT {value}")


def add_missing_curves(db: sqlite3.Connection) -> None:
    """Add an empty table of logged curves, as a temporary view, to a database without one."""
    if not db.execute("PRAGMA table_info(curves)").fetchall():
        _add_empty(db, "curves", ["id", "name", "rank"])


def _defaults(series: Series[Any]) -> dict[str, dict[str, Any]]:
    """Return by table the columns of a series with what they were before they were recorded."""
    columns = {name: _default(series, name) for name in series.fields}
    sums = {name: 0 if column.how == "sum" else "NULL" for name, column in series.columns.items()}
    return {series.name: columns, f"{series.name}_rollup": {series.key: "NULL", **sums}}


def _default(series: Series[Any], name: str) -> Any:
    value = series.defaults.get(name)
    return value if isinstance(value, int | float) else "NULL"


def _compare(
    db: sqlite3.Connection, table: str, columns: dict[str, Any]
) -> tuple[set[str], dict[str, Any]]:
    """Return the columns that a table has, and those of `columns` that it lacks."""
    existing = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    return existing, {name: columns[name] for name in columns if name not in existing}


def _add_empty(db: sqlite3.Connection, table: str, names: Iterable[str]) -> None:
    db.execute("PRAGMA temp_store = MEMORY")
    columns = ", ".join(f"NULL AS {name}" for name in names)
    db.execute(f"CREATE TEMP VIEW {table} AS SELECT {columns} WHERE 0")
