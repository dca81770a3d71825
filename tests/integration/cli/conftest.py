"""Records written as a supervisor writes them, and the command as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.protocol.events import (
    Notice,
    RankSample,
    Saved,
)
from tests.support import ROOT
from tests.support.records import RunBuilder

Start = Callable[..., subprocess.Popen[str]]
Distrain = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def environment(tmp_path: Path, runs_dir: Path) -> dict[str, str]:
    """Return an environment without the presets and runs of the user who runs the tests."""
    changes = {
        "DISTRAIN_RUNS_DIR": str(runs_dir),
        "DISTRAIN_CONFIG_DIR": str(tmp_path / "config"),
        "PYTHONPATH": str(ROOT / "src"),
    }
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    return {k: v for k, v in os.environ.items() if k not in unwanted} | changes


@pytest.fixture
def start_plain(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Start `python …` in the folder of the test; it is killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment | variables,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def distrain(tmp_path: Path, environment: dict[str, str]) -> Distrain:
    """Run `python -m runners …` in an empty folder with captured output."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "distrain", *arguments],
            env=environment | variables,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    return run


class SampledRun(RunBuilder):
    """A record with a sample of each rank at each step, and a checkpoint at each evaluation."""

    def steps(self, count: int, loss: Callable[[int], float] = lambda step: 1 / step) -> SampledRun:
        for _ in range(count):
            super().steps(1, loss)
            for rank in range(self.world):
                self.writer.add(
                    RankSample(time=self.now, rank=rank, cpu=50.0, rss=3e8, processes=1)
                )
        self.writer.commit()
        return self

    def evaluation(self, top1: float, best: bool = True) -> SampledRun:
        super().evaluation(loss=0.5, top1=top1)
        self.writer.add(
            Saved(
                time=self.now,
                epoch=self.step // 10,
                step=self.step,
                path="checkpoints/last.pt",
                seconds=0.01,
                bytes=240_000,
                best=best,
            )
        )
        self.writer.commit()
        return self

    def notice(self, text: str) -> SampledRun:
        self.writer.add(Notice(time=self.now, text=text))
        self.writer.commit()
        return self

    def log(self, name: str, text: str) -> SampledRun:
        with (self.dir / "logs" / f"{name}.log").open("a") as file:
            file.write(text)
        return self


@pytest.fixture
def fabricate(runs_dir: Path) -> Callable[..., SampledRun]:
    def make(name: str = "", world: int = 2, **changes: Any) -> SampledRun:
        return SampledRun(runs_dir, name, world=world, word="made", command=["test"], **changes)

    return make


@pytest.fixture
def finished(fabricate: Callable[..., SampledRun]) -> SampledRun:
    """Return a completed run of 40 steps on two ranks with two evaluations."""
    run = fabricate("first").steps(20).evaluation(0.91).notice("mind the gap")
    run.steps(20).evaluation(0.9555)
    run.log("rank-0", "zero one\nzero two\n").log("rank-1", "one one").log("launcher", "hi\n")
    return run.end(reason="completed all steps")
