"""A disk that is full, for the databases of records."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from distrain.runners.records import writer
from distrain.runners.records.database import open_for_writing


class Disk:
    """Refuses to let databases grow once it is full.

    It applies to every RecordWriter that is created after it.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._databases: list[sqlite3.Connection] = []
        patch.setattr(writer, "open_for_writing", self._open)

    def _open(self, path: Path) -> sqlite3.Connection:
        database = open_for_writing(path)
        self._databases.append(database)
        return database

    def fill(self) -> None:
        """Make SQLite report a full disk when a database needs another page."""
        self._limit(1)  # SQLite raises it to the pages that are in use

    def free(self) -> None:
        """Make room for 100,000 pages per database."""
        self._limit(100_000)

    def _limit(self, pages: int) -> None:
        assert self._databases, "create the disk before the writer"
        for database in self._databases:
            database.execute(f"PRAGMA max_page_count = {pages}")
