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
    defaults = {name: _default(series, name) for name in series.fields}
    _add_columns(db, series.name, defaults)
    sums = {name: 0 if column.how == "sum" else "NULL" for name, column in series.columns.items()}
    _add_columns(db, f"{series.name}_rollup", {series.key: "NULL", **sums})


def add_missing_curves(db: sqlite3.Connection) -> None:
    """Add an empty table of logged curves, as a temporary view, to a database without one."""
    if not db.execute("PRAGMA table_info(curves)").fetchall():
        _add_empty(db, "curves", ["id", "name", "rank"])


def _default(series: Series[Any], name: str) -> Any:
    value = series.defaults.get(name)
    return value if isinstance(value, int | float) else "NULL"


def _add_empty(db: sqlite3.Connection, table: str, names: Iterable[str]) -> None:
    db.execute("PRAGMA temp_store = MEMORY")
    columns = ", ".join(f"NULL AS {name}" for name in names)
    db.execute(f"CREATE TEMP VIEW {table} AS SELECT {columns} WHERE 0")


def _add_columns(db: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    existing = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    missing = [f"{value} AS {name}" for name, value in values.items() if name not in existing]
    if not existing:
        _add_empty(db, table, ["level", "seq", *values])
    elif missing:
        db.execute("PRAGMA temp_store = MEMORY")
        columns = ", ".join(["*", *missing])
        db.execute(f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM main.{table}")
