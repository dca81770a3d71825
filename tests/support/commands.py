"""`distrain` commands that keep running, on this host or another, and the run that they make."""

from __future__ import annotations

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from distrain import Record
from tests.support.runs import wait_until

DISTRAIN = (sys.executable, "-m", "distrain")
ENDLESS = {"task.name": "faulty:make", "task.args": {"pace": 0.02}, "train.epochs": 100_000}
END_S = 120.0


class Commands(ABC):
    """The commands of one run with `ranks` ranks. They are killed at the end of the block."""

    def __init__(self, runs: Path, ranks: int) -> None:
        self.runs, self.ranks = runs, ranks
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started:
            process.kill()
            process.wait()

    @property
    @abstractmethod
    def output(self) -> str:
        """What all commands have printed."""

    def run_to_end(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run([*DISTRAIN, *words], capture_output=True, text=True, timeout=END_S)

    def exit_code(self, process: subprocess.Popen[bytes], seconds: float = END_S) -> int:
        """Wait for a command and return its exit code; fail after so many seconds."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it is still running:\n{self.output}") from None

    def assert_continues(
        self, processes: Iterable[subprocess.Popen[bytes]], steps: int = 10
    ) -> None:
        """Wait until the run has made more steps; fail if a process ends before."""
        wanted = self.step + steps
        wait_until(lambda: self.step > wanted or any(each.poll() is not None for each in processes))
        assert self.step > wanted, self.output

    @property
    def record(self) -> Record:
        (file,) = wait_until(lambda: list(self.runs.glob("*/run.json")))
        return Record(file.parent)

    @property
    def step(self) -> int:
        """Return the last step that all ranks have finished."""
        latest = self.record.latest() if any(self.runs.glob("*/run.json")) else {}
        return min(window.step for window in latest.values()) if len(latest) == self.ranks else 0

    def evaluation(self) -> dict[str, Any]:
        return dict(self.record.summary()["eval"])

    def evaluate_alone(self, **changes: Any) -> dict[str, Any]:
        """Train the same in one process and return its evaluation."""
        done = self.run_to_end(
            "run", "single", "--json", *sets(dotted(changes)), "--runs-dir=alone"
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout)["eval"])


def dotted(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Replace `__` in the keys of a config with a dot."""
    return {key.replace("__", "."): value for key, value in changes.items()}


def sets(settings: Mapping[str, Any]) -> list[str]:
    """Return the options that set these keys."""
    return [f"--set={key}={_toml(value)}" for key, value in settings.items()]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)
