"""Slurm's commands, replaced by shell scripts, and the launcher that calls them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from distrain import Run
from tests.support.runs import wait_until

Plays = Callable[[str, str], None]


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Replace a command by a few lines of shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def one(name: str, lines: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)

    return one


def launcher_of(run: Run) -> psutil.Process:
    """Return the launcher process of a run once it exists."""

    def found() -> psutil.Process | None:
        for child in psutil.Process(run.record.state.supervisor_pid).children():
            with suppress(psutil.NoSuchProcess):
                if child.cmdline()[3:4] == ["distrain.runners.launchers.slurm.launcher"]:
                    return child
        return None

    process: psutil.Process = wait_until(found)
    return process


def kill_launcher(run: Run) -> None:
    """Kill the launcher process of a run and wait until it is dead."""
    process = launcher_of(run)
    process.kill()
    wait_until(lambda: is_dead(process))


def is_dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # reaped between the two questions
        return True
