"""The files of the app in the config folder, on file systems of all kinds."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from distrain.runners.system import files
from distrain.tui.user_file import UserFile


def test_a_file_system_without_locks_does_not_delay_the_app(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")  # as NFS does for a folder

    def fail(_: float) -> None:
        raise AssertionError("waits for a lock that nobody holds")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    monkeypatch.setattr(files.time, "sleep", fail)
    file = UserFile("test.toml", dict[str, int])
    assert file.change(lambda table, _: table.update(a=1)) == ""
    assert file.read_or_keep({}) == ({"a": 1}, "")
