"""Runs that never ran: records written as a supervisor would, and the command as a person does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runners.config import RunConfig
from runners.devices import Device
from runners.events import (
    Evaluation,
    Facts,
    Hello,
    Metric,
    Notice,
    Phase,
    RankSample,
    Saved,
    Window,
)
from runners.plan import make_plan
from runners.record import Meta, Record, RecordWriter, create_run

Distrain = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[2]
STEP_S = 0.1


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def surroundings(tmp_path: Path, runs_dir: Path) -> dict[str, str]:
    """An environment without presets or runs of whoever runs the tests."""
    ours = {
        "DISTRAIN_RUNS_DIR": str(runs_dir),
        "DISTRAIN_CONFIG_DIR": str(tmp_path / "config"),
        "PYTHONPATH": str(ROOT),
    }
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    return {k: v for k, v in os.environ.items() if k not in unwanted} | ours


@pytest.fixture
def distrain(tmp_path: Path, surroundings: dict[str, str]) -> Distrain:
    """Run `python -m runners …` in an empty folder with captured output."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "runners", *arguments],
            env=surroundings | environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


class Fabricated:
    """A record in the making; `steps` writes training, `end` its end."""

    def __init__(self, runs_dir: Path, name: str = "", world: int = 2, **changes: Any) -> None:
        config = RunConfig().with_changes({"train.epochs": 4, **changes})
        devices = [Device(kind="cpu", index=index) for index in range(world)]
        plan = make_plan(config, devices)
        folder = create_run(
            runs_dir, config, plan=plan, word="made", command=["test"], meta=Meta(name=name)
        )
        self.world, self.step, self.began = world, 0, time.time() - 100
        self.writer = RecordWriter(folder)
        self.id = folder.name
        self.dir = folder
        self.writer.set_state(
            status="running",
            started=self.began,
            supervisor_pid=os.getpid(),
            supervisor_started=psutil.Process().create_time(),
            host=socket.gethostname(),
        )
        for rank in range(world):
            self.writer.add(
                Hello(
                    rank=rank, world_size=world, pid=1000 + rank, host="here", device=f"cpu:{rank}"
                )
            )
            self.writer.add(Phase(time=self.began, rank=rank, phase="training"))
        facts = Facts(
            time=self.began,
            train_samples=640,
            eval_samples=100,
            steps_per_epoch=10,
            total_steps=40,
            parameters=26_122,
            backend="gloo",
        )
        self.writer.set_state(facts=facts)
        self.writer.add(facts)
        self.writer.commit()

    @property
    def now(self) -> float:
        return self.began + self.step * STEP_S

    def steps(self, count: int) -> Fabricated:
        """So many steps of 64 samples in 0.1 s on every rank, the loss falling as 1/step."""
        for _ in range(count):
            self.step += 1
            for rank in range(self.world):
                self.writer.add(self._window(rank))
                self.writer.add(
                    RankSample(time=self.now, rank=rank, cpu=50.0, rss=3e8, processes=1)
                )
        self.writer.commit()
        return self

    def _window(self, rank: int) -> Window:
        loss = 1 / self.step
        return Window(
            time=self.now,
            rank=rank,
            epoch=(self.step - 1) // 10,
            step=self.step,
            steps=1,
            samples=64,
            loss_sum=64 * loss,
            loss_min=loss,
            loss_max=loss,
            lr=0.1,
            seconds=STEP_S,
            data=0.01,
            forward=0.02,
            backward=0.03,
            comm=0.02,
            optimizer=0.01,
        )

    def evaluation(self, top1: float, best: bool = True) -> Fabricated:
        epoch = self.step // 10
        metrics = {"loss": Metric(50.0, 100), "top1": Metric(top1 * 100, 100)}
        self.writer.add(
            Evaluation(
                time=self.now,
                epoch=epoch,
                step=self.step,
                samples=100,
                seconds=0.1,
                metrics=metrics,
            )
        )
        self.writer.add(
            Saved(
                time=self.now,
                epoch=epoch,
                step=self.step,
                path="checkpoints/last.pt",
                seconds=0.01,
                bytes=240_000,
                best=best,
            )
        )
        self.writer.commit()
        return self

    def notice(self, text: str) -> Fabricated:
        self.writer.add(Notice(time=self.now, text=text))
        self.writer.commit()
        return self

    def log(self, name: str, text: str) -> Fabricated:
        with (self.dir / "logs" / f"{name}.log").open("a") as file:
            file.write(text)
        return self

    def end(self, status: str = "completed", **state: Any) -> Fabricated:
        self.writer.commit()
        self.writer.set_state(status=status, ended=self.now, socket="", **state)
        self.writer.close()
        return self

    @property
    def record(self) -> Record:
        return Record(self.dir)


@pytest.fixture
def fabricate(runs_dir: Path) -> Callable[..., Fabricated]:
    def make(name: str = "", world: int = 2, **changes: Any) -> Fabricated:
        return Fabricated(runs_dir, name, world, **changes)

    return make


@pytest.fixture
def finished(fabricate: Callable[..., Fabricated]) -> Fabricated:
    """40 steps on two ranks with two evaluations, completed."""
    run = fabricate("first").steps(20).evaluation(0.91).notice("mind the gap")
    run.steps(20).evaluation(0.9555)
    run.log("rank-0", "zero one\nzero two\n").log("rank-1", "one one").log("launcher", "hi\n")
    return run.end(reason="all steps done")
