"""The files of an open database, watched for what somebody else does to them."""

from __future__ import annotations

import os
from pathlib import Path

_MAGIC = b"SQLite format 3\0"
MOVED = "moved"
_ENDINGS = ("", "-wal", "-shm")


class OpenFiles:
    """The files of a database that this process has open for writing.

    Close it after the database: to close one of the files releases SQLite's locks on it.
    """

    def __init__(self, path: Path) -> None:
        """Open the files; raises OSError."""
        self._path = path
        self._opened: dict[str, int] = {}
        self._sizes = dict.fromkeys(_ENDINGS, 0)
        for ending in _ENDINGS:
            self._opened[ending] = os.open(f"{path}{ending}", os.O_RDWR | os.O_CLOEXEC)
        self.restore_index()

    def restore_index(self) -> None:
        """Give the index of the log its size again if somebody has truncated it; raises OSError.

        Call it before SQLite is used: it accesses the index as memory, and without a file behind
        that the kernel ends this process by SIGBUS. SQLite computes the content again.
        """
        size = os.fstat(self._opened["-shm"]).st_size
        if size < self._sizes["-shm"]:
            os.ftruncate(self._opened["-shm"], self._sizes["-shm"])
        else:
            self._sizes["-shm"] = size

    def find_damage(self, path: Path) -> str:
        """Return "deleted", "overwritten" or MOVED; an empty string if nothing was done.

        `path` is where the database is now: it has moved if its folder has. The writer's own
        database only grows.
        """
        self.restore_index()
        for ending, descriptor in self._opened.items():
            opened = os.fstat(descriptor)
            try:
                found = os.lstat(f"{path}{ending}")
            except OSError:
                return "deleted"
            is_shorter = opened.st_size < self._sizes[ending]
            if is_shorter or not os.path.samestat(found, opened):
                return "overwritten"
            self._sizes[ending] = opened.st_size
        if os.pread(self._opened[""], len(_MAGIC), 0) != _MAGIC:
            return "overwritten"
        return "" if path == self._path else MOVED

    def close(self) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()
