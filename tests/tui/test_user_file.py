"""The files of the app in the config folder, on file systems of all kinds."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.system import files
from distrain.runners.system.home_folders import config_folder
from distrain.tui.data import command_history
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


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    file = UserFile("test.toml", dict[str, int])
    file.change(lambda table, _: table.update(a=1))
    target = file.path.rename(tmp_path / "dotfile.toml")
    file.path.symlink_to(target)
    file.change(lambda table, _: table.update(b=2))
    assert file.path.is_symlink()
    assert target.read_text() == "a = 1\nb = 2\n"


@pytest.mark.parametrize("special", ["/dev/zero", "pipe"])
def test_a_file_that_would_never_end_is_not_read(special: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    config_folder().mkdir(parents=True, exist_ok=True)
    file = UserFile("test.toml", dict[str, int])
    for path in (file.path, command_history.path()):
        path.symlink_to(tmp_path / special)
    with pytest.raises(OSError, match="not a regular file"):
        file.change(lambda table, _: table.update(a=1))
    assert file.read_or_keep({"a": 2}) == ({"a": 2}, "")
    assert command_history.load() == []
