"""Copying what can still be read of a database whose files were deleted or overwritten."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from distrain.runners.records.database import create_database
from distrain.runners.records.timeseries.appender import Appender
from distrain.runners.records.timeseries.series import SERIES
from distrain.runners.system.files import free_name, move_folder_aside

_DRAFT = ".metrics.salvaged"


def salvage(damaged: sqlite3.Connection, path: Path) -> list[str]:
    """Put a copy of an open database at `path`, and return the tables that are not whole in it.

    SQLite can read a deleted database as long as it is open. Roll-ups are computed again, so that
    they agree with the rows that were left. What was at `path` is kept where something is missing.
    Raises OSError, or sqlite3.Error if the copy cannot be written.
    """
    draft = path.with_name(_DRAFT)
    for ending in ("", "-wal", "-shm"):
        draft.with_name(draft.name + ending).unlink(missing_ok=True)
    create_database(draft)
    incomplete: list[str] = []
    with closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        copy.execute("BEGIN")
        for table in ("events", "curves", "ranks", *(series.name for series in SERIES)):
            _copy_table(damaged, copy, table, incomplete)
        for series in SERIES:
            Appender(series).roll_up_again(copy)
        copy.execute("COMMIT")
    if incomplete:
        with suppress(FileNotFoundError):
            os.rename(path, free_name(path, "damaged"))
    # Before the copy has its name: SQLite would take a log of the old database for its own.
    for ending in ("-wal", "-shm"):
        _make_room(path.with_name(path.name + ending))
    move_folder_aside(path)
    draft.replace(path)
    return incomplete


def _make_room(path: Path) -> None:
    move_folder_aside(path)
    path.unlink(missing_ok=True)


def _copy_table(
    damaged: sqlite3.Connection, copy: sqlite3.Connection, table: str, incomplete: list[str]
) -> None:
    columns = [column for _, column, *_ in copy.execute(f"PRAGMA table_info({table})")]
    marks = ", ".join("?" * len(columns))
    rows = _rows(damaged, f"SELECT {', '.join(columns)} FROM {table}", table, incomplete)
    copy.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)


def _rows(
    damaged: sqlite3.Connection, query: str, table: str, incomplete: list[str]
) -> Iterator[tuple[object, ...]]:
    try:
        yield from damaged.execute(query)
    except sqlite3.Error:
        incomplete.append(table)
