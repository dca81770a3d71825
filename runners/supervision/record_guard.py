"""The files of a live run's record, written again if somebody else deletes or overwrites them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from distrain.runners.errors import DistrainError
from distrain.runners.records.writer import RecordWriter
from distrain.runners.system.files import (
    encode_compact_json,
    encode_json,
    move_folder_aside,
    read_regular,
    write_atomically,
)

_Stamp = tuple[int, int, int, int]


class RecordGuard:
    """Compares run.json, config.toml and metrics.db with what the one writer has written."""

    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer
        self._folder = writer.dir.stat()
        self._config = read_regular(writer.dir / "config.toml")
        self._checked: dict[str, tuple[bytes, _Stamp | None]] = {}
        self._failures: set[str] = set()

    def restore(self) -> list[str]:
        """Write again what is not as it was, and return a sentence about each such file.

        What cannot be written is tried again with the next call, and returned once. Nothing is
        done where the folder is not the one of the run.
        """
        return [*self.restore_small_files(), *self.restore_database()]

    def restore_small_files(self) -> list[str]:
        """Restore run.json and config.toml; not while another thread may change the state."""
        return self._restored(self._restore_state, self._restore_config)

    def restore_database(self) -> list[str]:
        """Restore metrics.db, which takes minutes if it is large; any thread may call this."""
        return self._restored(self._writer.restore_database)

    def _restored(self, *parts: Callable[[], str]) -> list[str]:
        found: list[str] = []
        try:
            if self._is_folder_there():
                found.extend(part() for part in parts)
        except (OSError, DistrainError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            text = f"the record was changed by somebody else and cannot be restored: {why}"
            found.append("" if text in self._failures else text)
            self._failures.add(text)
        return list(filter(None, found))

    def _is_folder_there(self) -> bool:
        try:
            return os.path.samestat(self._writer.dir.stat(), self._folder)
        except FileNotFoundError:
            return False

    def _restore_state(self) -> str:
        state = self._writer.written_state
        return self._restore("run.json", encode_json(state), encode_compact_json(state))

    def _restore_config(self) -> str:
        return self._restore("config.toml", self._config)

    def _restore(self, name: str, content: bytes, *equal: bytes) -> str:
        """Write a file again that has neither this content nor one that is `equal` to it."""
        path = self._writer.dir / name
        stamp = _stamp(path)
        if self._checked.get(name) == (content, stamp):
            return ""
        done = _damage_of(path, [content, *equal])
        if done:
            move_folder_aside(path)
            write_atomically(path, content)
            stamp = _stamp(path)
        self._checked[name] = content, stamp
        return f"{name} was {done} by somebody else and was written again" if done else ""


def _damage_of(path: Path, contents: Sequence[bytes]) -> str:
    try:
        return "" if read_regular(path) in contents else "overwritten"
    except FileNotFoundError:
        return "deleted"
    except OSError:  # it is no regular file any more
        return "overwritten"


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
