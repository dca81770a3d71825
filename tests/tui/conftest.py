"""Runs that never ran, for screens to show: records written as a supervisor would."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from textual.pilot import Pilot

from runners.config import RunConfig
from runners.devices import Device
from runners.events import Evaluation, Facts, Hello, Metric, Phase, Window
from runners.plan import make_plan
from runners.record import Meta, Record, RecordWriter, create_run
from tests.tui.terminal import Terminal, terminal_in

STEP_S = 0.1


def _on(host: str, device: Device) -> Device:
    """A device of a host: no two GPUs have one UUID."""
    uuid = f"{device.uuid}-{host}" if device.uuid and host else device.uuid
    return msgspec.structs.replace(device, uuid=uuid)


PATIENCE_S = 60.0


async def until(
    pilot: Pilot[Any],
    holds: Callable[[], object],
    what: str = "",
    patience: float = PATIENCE_S,
) -> None:
    """Let the app go on until this holds; fails after so many seconds."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"never {what or holds}")
        await pilot.pause(0.02)


class Made:
    """A record in the making: live until `end`, which writes its summary as well.

    It was launched `ago` seconds before now; ten steps of 64 samples per rank make an epoch.
    Without `devices` it trains on so many CPU processes. Of several `hosts` each has as many of
    its ranks. Where it has not `begun` no rank has said a word.
    """

    def __init__(
        self,
        runs_dir: Path,
        name: str = "",
        *,
        ago: float = 100,
        world: int = 2,
        devices: Sequence[Device] = (),
        hosts: Sequence[str] = (),
        begun: bool = True,
        **changes: Any,
    ) -> None:
        self.hosts = list(hosts) or [""]
        self.each = len(devices) or world // len(self.hosts)
        each = list(devices) or [Device(kind="cpu", index=index) for index in range(self.each)]
        self.devices = [_on(host, device) for host in self.hosts for device in each]
        self.world, self.step = len(self.devices), 0
        if len(hosts) > 1 and changes.get("launcher") != "slurm":
            changes["dist.nodes"] = len(hosts)
        self.began = time.time() - ago
        self.now, self.step_s = self.began, STEP_S
        config = RunConfig().with_changes({"train.epochs": 4, **changes})
        plan = make_plan(config, each)
        self.dir = create_run(
            runs_dir, config, plan=plan, word=config.strategy, meta=Meta(name=name)
        )
        self.id = self.dir.name
        self.writer = RecordWriter(self.dir)
        self.writer.set_state(
            status="running",
            created=self.began,
            started=self.began,
            supervisor_pid=os.getpid(),
            supervisor_started=psutil.Process().create_time(),
            host=socket.gethostname(),
            hosts=list(hosts),
        )
        if not begun:
            return
        for rank, device in enumerate(self.devices):
            hello = Hello(
                rank=rank,
                world_size=self.world,
                pid=1000 + rank,
                host=self.hosts[rank // self.each],
                device=device.label,
                device_uuid=device.uuid,
            )
            self.writer.add(hello)
            self.writer.add(Phase(time=self.began, rank=rank, phase="training"))
        facts = Facts(
            time=self.began,
            train_samples=640,
            eval_samples=100,
            steps_per_epoch=10,
            total_steps=10 * config.train.epochs,
            parameters=26_122,
            backend=plan.backend,
        )
        self.writer.set_state(facts=facts)
        self.writer.add(facts)
        self.writer.commit()

    def steps(self, count: int, loss: Callable[[int], float] = lambda step: 1 / step) -> Made:
        for _ in range(count):
            self.step += 1
            self.now += self.step_s
            for rank in range(self.world):
                self.writer.add(self._window(rank, loss(self.step)))
        self.writer.commit()
        return self

    def _window(self, rank: int, loss: float) -> Window:
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
            seconds=self.step_s,
            data=0.01,
            forward=0.02,
            backward=0.03,
            comm=0.02,
            optimizer=0.01,
        )

    def evaluation(self, **metrics: float) -> Made:
        """An evaluation at this step, of 100 samples, with these values."""
        found = {name: Metric(100 * value, 100) for name, value in metrics.items()}
        self.writer.add(
            Evaluation(
                time=self.now,
                epoch=self.step // 10,
                step=self.step,
                samples=100,
                seconds=0.1,
                metrics=found,
            )
        )
        self.writer.commit()
        return self

    def end(self, status: str = "completed", **state: Any) -> Made:
        self.writer.commit()
        self.writer.set_state(status=status, ended=self.now, socket="", **state)
        with self.record as record:
            self.writer.set_state(summary=record.summary())
        self.writer.close()
        return self

    def note(self, **meta: Any) -> Made:
        self.record.set_meta(**meta)
        return self

    @property
    def record(self) -> Record:
        return Record(self.dir)


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, presets and runs of whoever runs the tests stay out of them."""
    monkeypatch.setenv("DISTRAIN_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "claims"))


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def make(runs_dir: Path) -> Callable[..., Made]:
    """Begin a run in the runs folder."""

    def begin(name: str = "", **how: Any) -> Made:
        return Made(runs_dir, name, **how)

    return begin


@pytest.fixture
def ended(make: Callable[..., Made]) -> Callable[..., Made]:
    """A run of 40 steps with an evaluation, completed."""

    def run(name: str = "", top1: float = 0.9, **how: Any) -> Made:
        return make(name, **how).steps(40).evaluation(loss=0.5, top1=top1).end()

    return run


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with terminal_in(tmp_path) as found:
        yield found
