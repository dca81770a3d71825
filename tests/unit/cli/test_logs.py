"""Logs of a record that somebody else may have written."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from distrain.runners.cli import logs, main
from distrain.runners.cli.script_lines import ScriptLines
from distrain.runners.records.reader import Record
from distrain.runners.runs import Run
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


def test_a_terminal_is_not_given_a_flood_of_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunBuilder(tmp_path, ago=0).steps(1).end().dir
    log = folder / "logs" / "rank-0.log"
    log.write_bytes(bytes(2 * logs.MOST_BYTES) + b"\nthe end\n")
    for terminal in (Terminal(), io.StringIO()):
        ScriptLines(Record(folder), io.StringIO(), 5.0, terminal).update()
        text = terminal.getvalue()
        assert (len(text) > logs.MOST_BYTES) != terminal.isatty()
        assert text.endswith("the end\n")
        left_out = f" left out; all of it is in {log}\n" in capsys.readouterr().err
        assert left_out == terminal.isatty()


def test_a_terminal_that_follows_logs_is_given_all_that_was_there_and_no_flood_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunBuilder(tmp_path, ago=0).steps(1).end().dir
    log = folder / "logs" / "rank-0.log"
    flood = "x" * 2 * logs.MOST_BYTES
    log.write_text(f"the beginning\n{flood}")
    still_live = iter([True, False])

    def attend(_: Run) -> bool:
        is_live = next(still_live)
        if not is_live:  # it has printed while the first lines were printed here
            with log.open("a") as file:
                file.write(f"{flood}\nthe end\n")
        return is_live

    monkeypatch.setattr(Run, "attend", attend)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["logs", folder.name, "--follow", "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("[rank 0] the beginning\n")
    assert printed.out.endswith("[rank 0] the end\n")
    assert len(flood) < len(printed.out) < 1.5 * len(flood)
    assert f" left out; all of it is in {log}\n" in printed.err


def test_a_long_name_of_a_value_leaves_room_for_others(tmp_path: Path) -> None:
    folder = RunBuilder(tmp_path).steps(1).logged(**{"n" * 1000: 1.0, "score": 2.0}).dir
    stream = io.StringIO()
    ScriptLines(Record(folder), stream, 5.0, io.StringIO()).update()
    (line,) = (each for each in stream.getvalue().splitlines() if "  progress  " in each)
    assert "nnn… 1  score 2" in line
    assert len(line) < 200
