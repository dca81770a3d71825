"""Slurm's commands, played by shell scripts, and the launcher that asks them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from runners import Run
from tests.e2e.conftest import wait_until

Plays = Callable[[str, str], None]


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Have a command do what a few lines of shell say."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def one(name: str, lines: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)

    return one


def launcher_of(run: Run) -> psutil.Process:
    """Once it runs."""

    def found() -> psutil.Process | None:
        for child in psutil.Process(run.record.state.supervisor_pid).children():
            with suppress(psutil.NoSuchProcess):
                if child.cmdline()[3:4] == ["runners.launchers.slurm"]:
                    return child
        return None

    process: psutil.Process = wait_until(found)
    return process


def kill_launcher(run: Run) -> None:
    process = launcher_of(run)
    process.kill()
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
