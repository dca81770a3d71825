"""Logs of a record that somebody else may have written."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from distrain.runners.cli import main, script_lines
from distrain.runners.cli.script_lines import ScriptLines
from distrain.runners.records.reader import Record
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_not_given_a_flood_of_output(tmp_path: Path) -> None:
    folder = RunBuilder(tmp_path, ago=0).steps(1).end().dir
    log = folder / "logs" / "rank-0.log"
    log.write_bytes(bytes(2 * script_lines.MOST_BYTES) + b"\nthe end\n")
    for terminal in (Terminal(), io.StringIO()):
        ScriptLines(Record(folder), io.StringIO(), 5.0, terminal).update()
        text = terminal.getvalue()
        assert (len(text) > script_lines.MOST_BYTES) != terminal.isatty()
        assert text.endswith("the end\n")
        assert (f" left out; all of it is in {log}\n" in text) == terminal.isatty()
