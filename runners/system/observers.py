"""How the ranks of a program that distrain did not start find the observer of their run.

The observer writes a file into the private folder of the user. Its name is made from a key that all
ranks of one start of the program on a host have in common.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from distrain.runners.system.files import write_json
from distrain.runners.system.private_folder import private_folder


class ObservationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 passes to the observer that it starts: the program, and where to record it.

    `pid` is the process of rank 0, `started` the Unix time of its `init`. `words` are the program
    and its arguments. `started_by` is how its ranks were started, as a launcher is named. `listen`
    is HOST:PORT for ranks of other hosts, empty where there are none.
    """

    key: str
    pid: int
    started: float
    words: list[str]
    is_module: bool = False
    name: str = ""
    world_size: int = 1
    local_size: int = 1
    started_by: str = "inline"
    listen: str = ""


class Observer(msgspec.Struct, frozen=True):
    """A running observer: its address "unix:PATH", the record that it writes, and its process."""

    address: str
    dir: str
    pid: int


def publish(key: str, observer: Observer) -> None:
    """Let the ranks with this key find an observer. Raises DistrainError or OSError."""
    _remove_leftovers()
    write_json(_file(key), observer)


def withdraw(key: str, pid: int) -> None:
    """Remove what the observer with this pid has published."""
    with contextlib.suppress(OSError):
        found = _read(key)
        if found and found.pid == pid:
            _file(key).unlink()


def forget(key: str) -> None:
    """Remove what an earlier observer has left."""
    _file(key).unlink(missing_ok=True)


def look_up(key: str) -> Observer | None:
    """Return the running observer of a key; None where there is none yet."""
    found = _read(key)
    return found if found and _exists(found.pid) else None


def _remove_leftovers() -> None:
    """Remove what observers that were killed have left."""
    for file in _folder().iterdir():
        found = _read_file(file)
        if found and not _exists(found.pid):
            file.unlink(missing_ok=True)


def _read(key: str) -> Observer | None:
    return _read_file(_file(key))


def _read_file(file: Path) -> Observer | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Observer)
    except (OSError, msgspec.DecodeError):
        return None


def _file(key: str) -> Path:
    return _folder() / hashlib.sha256(key.encode()).hexdigest()[:32]


def _folder() -> Path:
    return private_folder("observers")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
