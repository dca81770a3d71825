"""Real runs in a temporary folder; their processes are killed when a test ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrain import Run, RunConfig, launch
from tests.support.runs import processes_of

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
