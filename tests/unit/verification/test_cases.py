"""The process that compares a run with one plain process, from outside."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
