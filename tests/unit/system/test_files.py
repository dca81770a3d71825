"""Files that are not trusted."""

from __future__ import annotations

import errno
import json
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Never

import pytest

from distrain.runners.system import files
from distrain.runners.system.files import (
    open_replacement,
    read_regular,
    size_of_draft,
    write_json,
)


def test_reading_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """A buffer of the most that is allowed took most of the time of listing runs."""
    path = tmp_path / "run.json"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read_regular(path) == b"x" * 1000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_full_disk_takes_a_state_with_more_text_than_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason of the end did not fit, so a bench on a full disk counted as killed."""

    def full(path: Path, content: bytes) -> Never:
        raise OSError(errno.ENOSPC, "No space left on device")

    state = {"status": "running", "measurements": [{"round": n, "steps": n} for n in range(20)]}
    path = tmp_path / "bench.json"
    write_json(path, state)
    size = path.stat().st_size
    ended = state | {"status": "failed", "reason": "No space left on device"}
    monkeypatch.setattr(files, "write_atomically", full)
    write_json(path, ended, in_place=True)
    assert json.loads(path.read_bytes()) == ended
    assert path.stat().st_size <= size


def test_a_replacement_keeps_the_mode_and_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("target")
    with open_replacement(link) as file:
        file.write("new")
        file.flush()
        assert (target.read_text(), size_of_draft(link)) == ("old", 3)
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o600)
    assert sorted(tmp_path.iterdir()) == [link, target]
    assert size_of_draft(link) == 0


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_that_another_user_has_made_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if exists:
        target.write_text("old")
    link.symlink_to("target")
    uid = link.lstat().st_uid or 4711
    os.lchown(link, uid, -1)
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(OSError, match="a link of another user"), open_replacement(link):
        pass
    assert target.exists() == exists
    assert not exists or target.read_text() == "old"


def test_pipes_and_streams_are_written_to_themselves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with open_replacement(pipe) as file:
        file.write("into the pipe")
    reader.join()
    with open_replacement(Path("/dev/stdout")) as file:
        file.write("to stdout")
    assert (read, capfd.readouterr().out) == (["into the pipe"], "to stdout")
