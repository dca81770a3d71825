"""`distrain` commands that go on, wherever they run, and the run that they make."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from runners import Record
from tests.e2e.conftest import wait_until

DISTRAIN = (sys.executable, "-m", "runners")
ENDLESS = {"task.name": "faulty:make", "task.args": {"pace": 0.02}, "train.epochs": 100_000}
END_S = 120.0


class Commands:
    """Those of one run of so many ranks; none outlives the block."""

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
    def told(self) -> str:
        """What all of them have said."""
        raise NotImplementedError

    def once(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One from start to end."""
        return subprocess.run([*DISTRAIN, *words], capture_output=True, text=True, timeout=END_S)

    def ended(self, process: subprocess.Popen[bytes], seconds: float = END_S) -> int:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on:\n{self.told}") from None

    def goes_on(self, processes: Iterable[subprocess.Popen[bytes]], steps: int = 10) -> None:
        wanted = self.step + steps
        wait_until(lambda: self.step > wanted or any(one.poll() is not None for one in processes))
        assert self.step > wanted, self.told

    @property
    def record(self) -> Record:
        (file,) = wait_until(lambda: list(self.runs.glob("*/run.json")))
        return Record(file.parent)

    @property
    def step(self) -> int:
        """That all ranks have finished."""
        latest = self.record.latest() if any(self.runs.glob("*/run.json")) else {}
        return min(window.step for window in latest.values()) if len(latest) == self.ranks else 0

    def evaluation(self) -> dict[str, Any]:
        return dict(self.record.summary()["eval"])

    def alone(self, **changes: Any) -> dict[str, Any]:
        """The evaluation of the same run in one process."""
        done = self.once("run", "single", "--json", *sets(dotted(changes)), "--runs-dir=alone")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout)["eval"])


def dotted(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a config that have `__` for the dot."""
    return {key.replace("__", "."): value for key, value in changes.items()}


def sets(settings: Mapping[str, Any]) -> list[str]:
    """The options that set these keys."""
    return [f"--set={key}={_toml(value)}" for key, value in settings.items()]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)
