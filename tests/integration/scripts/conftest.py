"""Programs of a user's in a folder of their own, and the command that runs them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain import Record
from tests.integration.cli.conftest import (
    Distrain,
    distrain,
    environment,
    runs_dir,
    start_plain,
)

__all__ = ["distrain", "environment", "runs_dir", "start_plain"]

Write = Callable[..., Path]
Plain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a program into the folder that `distrain` runs in."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())
        return path

    return write


@pytest.fixture
def plain(tmp_path: Path, environment: dict[str, str]) -> Plain:
    """Run `python …` in the same folder and environment, without distrain."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            process_group=0,  # as a shell starts it
        )

    return run


def only_run(runs_dir: Path) -> Record:
    """Return the record of the only run."""
    (file,) = runs_dir.glob("*/run.json")
    return Record(file.parent)


def log_of(record: Record, rank: int = 0) -> str:
    return (record.dir / "logs" / f"rank-{rank}.log").read_text()


def start(*words: str, environment: dict[str, str], folder: Path) -> str:
    """Start a run with --detach and return its id."""
    done = subprocess.run(
        [sys.executable, "-m", "distrain", "run", "--detach", *words],
        env=environment | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def summary(distrain: Distrain, *words: str) -> dict[str, Any]:
    done = distrain("run", "--json", *words)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def own_variables(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables without those that differ between any two processes or shells."""
    unstable = ("_", "OLDPWD", "SHLVL", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    return {
        name: value
        for name, value in variables.items()
        if name not in unstable and not name.startswith("DISTRAIN_")
    }
