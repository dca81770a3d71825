"""metrics.db: how it is created, opened for writing, and opened read-only.

SQLite in WAL mode with one writer and any number of readers. Its tables are `events`, `ranks`,
`curves` and two for each series of `timeseries.series`.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from itertools import chain
from pathlib import Path

from distrain.runners.records.compat import (
    add_missing_columns,
    add_missing_curves,
    store_missing_columns,
)
from distrain.runners.records.ranks import RANK_FIELDS
from distrain.runners.records.timeseries.series import SERIES
from distrain.runners.system.files import MOST_BYTES, require_regular

DATABASE = "metrics.db"
UNDONE = "undone"  # the kind of a discarded event; its body is unchanged
# The cache of the writer: a rank or curve has an open page in its table and on each level above.
PLACE_KIB = 16
LEAST_CACHE_KIB = 2000
MOST_CACHE_KIB = 16_000
READER_CACHE_KIB = 500  # the operating system keeps the pages too

_TABLES = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY, time REAL, kind TEXT, rank INTEGER, "
    "step INTEGER, body TEXT)",
    "CREATE INDEX events_kind ON events (kind)",
    "CREATE TABLE curves (id INTEGER PRIMARY KEY, name TEXT, rank INTEGER)",
    f"CREATE TABLE ranks ({', '.join(RANK_FIELDS)}, PRIMARY KEY (rank)) WITHOUT ROWID",
)
# What somebody else's database executes when it is read; distrain creates none of it. Only what is
# known is allowed: an edited `sql` may be spelled in ways that SQLite accepts but never writes.
_COMPUTED = (
    "SELECT 1 FROM sqlite_master AS made WHERE coalesce(sql, 'CREATE INDEX') NOT LIKE "
    "CASE type WHEN 'table' THEN 'CREATE TABLE%' ELSE 'CREATE INDEX%' END "
    "OR EXISTS (SELECT 1 FROM pragma_table_xinfo(made.name) WHERE hidden)"
)


def create_database(path: Path) -> None:
    """Create a database; it appears under its name only once its tables exist.

    Raises OSError or sqlite3.Error.
    """
    if path.exists():
        raise FileExistsError("it has been written already; a resumed run is a new record")
    draft = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        draft.unlink()
    db = sqlite3.connect(draft, isolation_level=None)
    # The file is synchronised once, at the end, not after each table.
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA journal_mode = WAL")
    _create_tables(db)
    db.close()
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(path)


def _create_tables(db: sqlite3.Connection) -> None:
    """Create the tables that do not exist."""
    statements = [*_TABLES, *chain.from_iterable(series.schema() for series in SERIES)]
    for statement in statements:
        create, kind, rest = statement.split(" ", 2)
        db.execute(f"{create} {kind} IF NOT EXISTS {rest}")


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open an existing database for its one writer. Raises sqlite3.Error.

    An older version may have begun it: tables and columns that it lacks are added.
    """
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    _create_tables(db)
    for series in SERIES:
        store_missing_columns(db, series)
    return db


def set_cache(db: sqlite3.Connection, places: int) -> None:
    """Let a writer keep the pages of so many places at which it appends, and not many more.

    SQLite fills its cache before it forgets a page: a large one grows for an hour with few ranks.
    """
    kib = min(max(PLACE_KIB * places, LEAST_CACHE_KIB), MOST_CACHE_KIB)
    db.execute(f"PRAGMA cache_size = -{kib}")


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a database read-only, with the columns that it lacks.

    Raises sqlite3.DatabaseError, and OSError if it is not a regular file.
    """
    for ending in ("", "-wal", "-shm", "-journal"):  # SQLite opens these too
        with suppress(FileNotFoundError):
            # Not opened: closing it would release the locks that this process has on the database.
            require_regular(os.lstat(path.with_name(path.name + ending)))
    try:
        return _open_read_only(path, "mode=ro")
    except sqlite3.OperationalError:
        # Reading a WAL database creates files next to it. Where that is forbidden nobody else
        # writes either, so it can be read as an unchanging file, unless its newest part is in a
        # WAL.
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise
        return _open_read_only(path, "mode=ro&immutable=1")


def _open_read_only(path: Path, options: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, check_same_thread=False)
    try:
        db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        # A value that was computed could fill the memory, or take forever, in a small file.
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        if db.execute(_COMPUTED).fetchone():
            raise sqlite3.DataError("it has views, triggers, virtual tables or generated columns")
        add_missing_curves(db)
        for series in SERIES:
            add_missing_columns(db, series)
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db
