"""Files on PYTHONPATH that hide modules of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from distrain.runners.system.python_path import hidden_module


def test_a_file_that_hides_a_module_of_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "training.py").touch()
    environment = {"PYTHONPATH": f"{tmp_path / 'none'}{os.pathsep}{tmp_path}"}
    assert hidden_module(environment) == ""
    (tmp_path / "asyncio.py").touch()
    assert hidden_module(environment).startswith(f"{tmp_path / 'asyncio.py'} hides")
    assert hidden_module(environment, among=["queue"]) == ""


def test_a_command_that_fails_for_such_a_file_names_it_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "random.py").touch()
    command = [sys.executable, "-m", "distrain", "run", "ddp", "--runs-dir", str(tmp_path)]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"distrain: {tmp_path / 'random.py'} hides Python's module")
    assert "Traceback" not in done.stderr
