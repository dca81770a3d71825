"""The files of an open database, watched for what somebody else does to them."""

from __future__ import annotations

import os
from pathlib import Path

_MAGIC = b"SQLite format 3\0"
_ENDINGS = ("", "-wal", "-shm")


class OpenFiles:
    """The files of a database that this process has open for writing.

    Close it after the database: to close one of the files releases SQLite's locks on it.
    """

    def __init__(self, path: Path) -> None:
        """Open the files; raises OSError."""
        self._opened: dict[Path, int] = {}
        self._sizes: dict[Path, int] = {}
        for ending in _ENDINGS:
            file = path.with_name(path.name + ending)
            self._opened[file] = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            self._sizes[file] = 0
        self._database = self._opened[path]

    def what_was_done(self) -> str:
        """Return "deleted" or "overwritten"; an empty string if the files are as SQLite left them.

        The writer's own database only grows.
        """
        for file, descriptor in self._opened.items():
            opened = os.fstat(descriptor)
            try:
                found = os.lstat(file)
            except OSError:
                return "deleted"
            is_shorter = opened.st_size < self._sizes[file]
            if is_shorter or not os.path.samestat(found, opened):
                return "overwritten"
            self._sizes[file] = opened.st_size
        return "" if os.pread(self._database, len(_MAGIC), 0) == _MAGIC else "overwritten"

    def close(self) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()
