"""Records of runs, written as a supervisor would write them, without any process.

Values that a test does not name do not matter to it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import psutil

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import (
    ENDLESS,
    Evaluation,
    Facts,
    Hello,
    Logged,
    LoggedStats,
    Metric,
    Phase,
    Window,
)
from distrain.runners.records.folder import create_run
from distrain.runners.records.meta import Meta
from distrain.runners.records.reader import Record
from distrain.runners.records.stall import RankPhase, RankPosition, Stall
from distrain.runners.records.writer import RecordWriter
from distrain.runners.system.devices import Device

STEP_S = 0.1
FACTS = Facts(
    time=0.0,
    train_samples=640,
    eval_samples=100,
    steps_per_epoch=10,
    total_steps=40,
    parameters=26_122,
    backend="gloo",
)


def make_window(rank: int = 0, step: int = 1, steps: int = 1, **changes: Any) -> Window:
    """Return a window of `steps` steps: 4 samples each with loss 2, in 0.5 s in all."""
    fields: dict[str, Any] = {
        "time": 1000.0 + step,
        "epoch": step // 10,
        "samples": 4 * steps,
        "loss_sum": 8.0 * steps,
        "loss_min": 2.0,
        "loss_max": 2.0,
        "lr": 0.1,
        "seconds": 0.5,
    }
    return Window(rank=rank, step=step, steps=steps, **(fields | changes))


def _on(host: str, device: Device) -> Device:
    """Return the device with a UUID of its own on this host."""
    uuid = f"{device.uuid}-{host}" if device.uuid and host else device.uuid
    return msgspec.structs.replace(device, uuid=uuid)


class RunBuilder:
    """Writes the record of a run as its supervisor would, but no process runs.

    The run is live until `end`, which also writes its summary. It was launched `ago` seconds
    before now; ten steps of 64 samples per rank make an epoch. Without `devices` it trains on
    `world` CPU processes. With several `hosts` each has the same number of ranks. With
    `begun=False` no rank has connected yet. With `is_stream` there are no epochs.
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
        word: str = "",
        command: Sequence[str] = (),
        is_stream: bool = False,
        **changes: Any,
    ) -> None:
        self.hosts = list(hosts) or [""]
        self.each = len(devices) or world // len(self.hosts)
        each = list(devices) or [Device(kind="cpu", index=index) for index in range(self.each)]
        self.devices = [_on(host, device) for host in self.hosts for device in each]
        self.world, self.step = len(self.devices), 0
        self.steps_per_epoch = 0 if is_stream else 10
        if len(hosts) > 1 and changes.get("launcher") != "slurm":
            changes["dist.nodes"] = len(hosts)
        self.began = time.time() - ago
        self.now, self.step_s = self.began, STEP_S
        if "script" in changes:  # it reports no facts
            config = RunConfig.from_dict({"devices": f"cpu:{self.world}", **changes})
        else:
            config = RunConfig().with_changes({"train.epochs": 4, **changes})
        plan = plan_here(config, each)
        self.dir = create_run(
            runs_dir,
            config,
            plan=plan,
            word=word or config.strategy,
            command=list(command),
            meta=Meta(name=name),
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
                host=self.hosts[rank // self.each] or "here",
                device=device.label,
                device_uuid=device.uuid,
            )
            self.writer.add(hello)
            self.writer.add(Phase(time=self.began, rank=rank, phase="training"))
        if config.is_script:
            return
        facts = Facts(
            time=self.began,
            train_samples=0 if is_stream else 640,
            eval_samples=100,
            steps_per_epoch=self.steps_per_epoch,
            total_steps=min(10 * config.train.epochs, ENDLESS),
            parameters=26_122,
            backend=plan.backend,
        )
        self.writer.set_state(facts=facts)
        self.writer.add(facts)
        self.writer.commit()

    def steps(self, count: int, loss: Callable[[int], float] = lambda step: 1 / step) -> RunBuilder:
        for _ in range(count):
            self.step += 1
            self.now += self.step_s
            for rank in range(self.world):
                self.writer.add(self.window(rank, loss(self.step)))
        self.writer.commit()
        return self

    def window(self, rank: int, loss: float) -> Window:
        return make_window(
            rank,
            self.step,
            time=self.now,
            epoch=(self.step - 1) // self.steps_per_epoch if self.steps_per_epoch else 0,
            samples=64,
            loss_sum=64 * loss,
            loss_min=loss,
            loss_max=loss,
            seconds=self.step_s,
            data=0.01,
            forward=0.02,
            backward=0.03,
            comm=0.02,
            optimizer=0.01,
        )

    def logged(self, **values: float) -> RunBuilder:
        """Add values that a script logs in a step of its own; rank 1 logs one more, and so on."""
        self.step += 1
        self.now += self.step_s
        for rank in range(self.world):
            found = {name: LoggedStats.of([value + rank]) for name, value in values.items()}
            self.writer.add(Logged(time=self.now, rank=rank, step=self.step, values=found))
        self.writer.commit()
        return self

    def evaluation(self, samples: int = 100, **metrics: float) -> RunBuilder:
        """Add an evaluation of so many samples at the current step, with these metrics."""
        found = {name: Metric(samples * value, samples) for name, value in metrics.items()}
        self.writer.add(
            Evaluation(
                time=self.now,
                epoch=self.step // self.steps_per_epoch if self.steps_per_epoch else 0,
                step=self.step,
                samples=samples,
                seconds=0.1,
                metrics=found,
            )
        )
        self.writer.commit()
        return self

    def stalled(self) -> RunBuilder:
        """Let rank 1 hang in its data from now on."""
        now = time.time()
        position = RankPosition(rank=1, since=now, phase=RankPhase.DATA)
        self.writer.set_state(stall=Stall(since=now, ranks=[1], positions=[position]))
        return self

    def end(self, status: str = "completed", **state: Any) -> RunBuilder:
        self.writer.commit()
        self.writer.set_state(status=status, ended=self.now, socket="", **state)
        with self.record as record:
            self.writer.set_state(summary=record.summary())
        self.writer.close()
        return self

    def note(self, **meta: Any) -> RunBuilder:
        self.record.set_meta(**meta)
        return self

    @property
    def record(self) -> Record:
        return Record(self.dir)


def completed_run(
    runs_dir: Path,
    steps: Callable[[int, int], dict[str, Any]],
    *,
    world: int = 2,
    count: int = 40,
    samples: Iterable[Any] = (),
    facts: Facts | None = None,
    usable_threads: int = 8,
    **changes: Any,
) -> Record:
    """Write a completed run with `count` windows of one step per rank, and return its record.

    `steps` returns the fields of a window by rank and step; `samples` are added after them.
    """
    run = RunBuilder(runs_dir, world=world, begun=False, **changes)
    for step, rank in product(range(1, count + 1), range(world)):
        run.writer.add(make_window(rank, step, **steps(rank, step)))
    for sample in samples:
        run.writer.add(sample)
    host = {"threads": 8, "usable_threads": usable_threads, "memory": 8 * 2**30}
    run.writer.set_state(
        status="completed", reason="all done", facts=facts, provenance={"host": host}
    )
    run.writer.close()
    return run.record
