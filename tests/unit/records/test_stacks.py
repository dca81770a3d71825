"""Stacks in the record of somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distrain.runners.errors import DistrainError
from distrain.runners.records.stacks import FILE, read_saved_stacks


def test_stacks_are_read_from_a_regular_file_of_the_record(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    assert read_saved_stacks(tmp_path) == ""
    path.write_bytes(b"rank 0\x1b[2J\n\xff")
    assert read_saved_stacks(tmp_path) == "rank 0·[2J\n\\xff\n"
    for replace in (lambda: path.symlink_to("/etc/hostname"), lambda: os.mkfifo(path)):
        path.unlink()
        replace()
        with pytest.raises(DistrainError, match=r"stacks\.log cannot be read: it is"):
            read_saved_stacks(tmp_path)
