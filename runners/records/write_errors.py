"""Errors of writing a record, with the reasons that SQLite does not tell."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.system.limits import explain, limit_hint

SQLITE_PATH = 512
LONGEST_NAME = len("/metrics.db-journal")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_damage(error: Exception) -> bool:
    """Return whether SQLite has found that the file is not the database that it was."""
    return _code(error) in _DAMAGE


def cannot_write(folder: Path, error: Exception) -> RunsFolderError:
    reason = explain(error) if isinstance(error, OSError) else str(error)
    if _code(error) == sqlite3.SQLITE_CANTOPEN:
        reason = _why_no_new_file(folder) or reason
    elif getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMMAP:
        reason = (
            "its file system does not let processes share memory; choose a runs folder on another"
            " one (--runs-dir or $DISTRAIN_RUNS_DIR)"
        )
    elif _code(error) == sqlite3.SQLITE_IOERR:
        reason += limit_hint(errno.EFBIG)
    return RunsFolderError(f"the record {folder} cannot be written: {reason}")


def _code(error: Exception) -> int:
    """Return SQLite's primary error code; 0 for another error."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _why_no_new_file(folder: Path) -> str:
    """Return why SQLite can create no file in a folder; empty where it can."""
    if len(os.fsencode(folder.absolute())) + LONGEST_NAME > SQLITE_PATH:
        return f"SQLite opens no file whose path has more than {SQLITE_PATH} bytes"
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return explain(error)


@contextmanager
def report_write_errors() -> Iterator[None]:
    """Print errors of a write instead of raising them.

    For writers that keep what the disk refused and try it again, e.g. while the disk is full.
    """
    try:
        yield
    except DistrainError as error:
        with suppress(OSError):  # the log is on the same disk
            print(error, file=sys.stderr, flush=True)
