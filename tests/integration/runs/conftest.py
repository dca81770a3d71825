"""Real runs in a temporary folder; their processes are killed when a test ends."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrain import Run, RunConfig, launch

QUICK: dict[str, Any] = {
    "task.name": "faulty:make",
    "train.epochs": 3,
    "train.threads": 1,
    "launcher": "spawn",  # starts sooner than torchrun
    "report.sample_s": 0.5,
    "dist.timeout_s": 60,
}


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder that contains their own task; it is the current directory."""
    shutil.copy(Path(__file__).with_name("faulty.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTRAIN_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path


@pytest.fixture
def start(user_folder: Path) -> Iterator[Callable[..., Run]]:
    """Return a function that launches a run with keys changed (`__` for the dot)."""
    started: list[Run] = []

    def start_one(**changes: Any) -> Run:
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        run = launch(RunConfig().with_changes({**QUICK, **dotted}))
        started.append(run)
        return run

    yield start_one
    for run in started:
        for process in processes_of(run.record.dir):
            process.kill()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the live supervisor, launcher, ranks and loader workers of a run."""
    found = []
    for process in psutil.process_iter():
        try:
            belongs = (
                process.environ().get("DISTRAIN_RUN") == str(folder)
                or str(folder) in process.cmdline()
            )
            if belongs and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(holds: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Wait for the first true value and return it; fail the test after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := holds():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {holds}")


def assert_nothing_left(run: Run) -> None:
    wait_until(lambda: not processes_of(run.record.dir), 10.0)


def steps_of(run: Run) -> dict[int, int]:
    """Return the last step that each rank has reported."""
    return {rank: window.step for rank, window in run.record.latest().items()}
