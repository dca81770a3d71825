"""Logs of a record that somebody else may have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distrain.runners.cli import main
from tests.support.records import RunBuilder


def test_logs_neither_follow_links_nor_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunBuilder(tmp_path / "runs").steps(1).end().dir
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    (folder / "logs" / "rank-0.log").write_text("one\x1b[2J\x1b[31mtwo\x1b[0m\x9b\n")
    (folder / "logs" / "rank-1.log").symlink_to(secret)
    os.mkfifo(folder / "logs" / "launcher.log")
    assert main(["logs", folder.name, "--runs-dir", str(folder.parent)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "[rank 0] one\x1b[31mtwo\x1b[0m·\n"
    assert "rank-1.log cannot be read: it is a symbolic link" in printed.err
    assert "launcher.log cannot be read: it is not a regular file" in printed.err
    (folder / "logs").rename(tmp_path / "logs")
    (folder / "logs").symlink_to(tmp_path / "logs")
    assert main(["logs", folder.name, "--rank", "0", "--runs-dir", str(folder.parent)]) == 1
    assert capsys.readouterr().out == ""
