"""The runs of a verification, and the process that compares one with a plain process."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distrain.runners.cli import verify
from distrain.runners.cli.parser import parse
from distrain.runners.system.processes import is_running
from distrain.runners.verification import cases
from distrain.runners.verification.cases import Verification
from tests.support.runs import wait_until

STARTS_A_SERVER = """
import subprocess, sys
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
sys.exit(f"it serves as process {server.pid}")
"""


def test_what_a_task_has_started_ends_with_its_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "compares.py").write_text(STARTS_A_SERVER)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    monkeypatch.setattr(cases, "COMPARISON", "compares")
    monkeypatch.setattr(cases, "launcher_environment", lambda *_: environment)
    record: Any = SimpleNamespace(dir=tmp_path, config=None, state=SimpleNamespace(plan=()))
    code, stderr = Verification()._run_comparison(record)
    assert (code, stderr.startswith("it serves as process ")) == (1, True)
    server = int(stderr.split()[-1])
    wait_until(lambda: not is_running(server, None))


class StalledRun:
    """A run that fails after two stalls."""

    status = "failed"
    reason = "rank 1 hangs"

    def __init__(self) -> None:
        self._obstacles = ["", "no progress for 5 s", "no progress for 6 s", "", "again", ""]
        self.record = self.state = self

    @property
    def is_live(self) -> bool:
        return bool(self._obstacles)

    @property
    def obstacle(self) -> str:
        return self._obstacles.pop(0)

    def wait_for_supervisor(self) -> None:
        pass


def test_why_a_run_makes_no_progress_is_printed_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cases, "launch", lambda *_, **__: StalledRun())
    assert verify.execute(parse(["verify", "single"])) == 1
    failure = "single on 1 rank: the run failed: rank 1 hangs"
    assert capsys.readouterr().err.splitlines() == ["no progress for 5 s", "again", failure]


def test_a_run_has_ended_before_its_folder_is_deleted_although_a_callback_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(text: str) -> None:
        raise OSError("closed")

    run = StalledRun()
    ended = []
    monkeypatch.setattr(run, "stop", lambda now: ended.append("stop"), raising=False)
    monkeypatch.setattr(run, "wait_for_supervisor", lambda: ended.append("supervisor"))
    monkeypatch.setattr(cases, "launch", lambda *_, **__: run)
    with pytest.raises(OSError, match="closed"):
        list(cases.verify(["single"], on_obstacle=fail))
    assert ended == ["stop", "supervisor"]
