"""Simulated runs, recorded as ranks and a supervisor would, at the rate of a fast training.

`python -m benchmarks.simulation FOLDER RANKS SECONDS NODES` is the supervisor of a live run
that is SECONDS old, until it receives SIGTERM.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from benchmarks.report import ROOT, settled_environment
from benchmarks.terminal import PATIENCE_S
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import (
    GPUS_PER_HOST,
    Evaluation,
    Facts,
    GpuSample,
    Hello,
    HostSample,
    Metric,
    Phase,
    RankSample,
    Saved,
    Window,
)
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.run_ids import new_run_id
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision.background import COMMIT_S
from distrain.runners.system.devices import Device

TICK_S = 0.1  # seconds between two windows of a rank
STEPS = 10  # steps per window
PER_EPOCH = 500  # steps; an evaluation after each, every 5 s
TOTAL = 1_000_000
SAMPLES = 16  # samples of a rank per step
GIB = 2**30
FIRST_PID = 4_000_000  # above every real pid
AT_ONCE_S = 10.0  # seconds of history per commit


class Simulation:
    """A run on GPUs with 100 steps per second; each node has the same number of ranks."""

    def __init__(self, runs: Path, ranks: int, history: float, nodes: int = 1) -> None:
        each = ranks // nodes
        gpus = [
            Device(kind="cuda", index=at, uuid=f"GPU-{at}", name="simulated", memory=80 * GIB)
            for at in range(each)
        ]
        changes = {"train.epochs": TOTAL // PER_EPOCH, "train.batch_size": SAMPLES * ranks}
        config = RunConfig().with_changes(changes | {"dist.nodes": nodes})
        folder = create_run(runs, config, plan=plan_here(config, gpus), word="bench")
        self.ranks, self.tick, self.began = range(ranks), 0, time.time() - history
        self._each, hosts = each, [f"node-{at:02}" for at in range(nodes)]
        self._chosen = random.Random(0)
        self.writer = RecordWriter(folder)
        facts = Facts(
            time=self.began,
            train_samples=PER_EPOCH * SAMPLES * ranks,
            eval_samples=10_000,
            steps_per_epoch=PER_EPOCH,
            total_steps=TOTAL,
            parameters=1_000_000,
            backend="nccl",
        )
        self.writer.set_state(
            status="running",
            started=self.began,
            hosts=hosts if nodes > 1 else [],
            supervisor_pid=os.getpid(),
            supervisor_started=psutil.Process().create_time(),
            facts=facts,
        )
        for at in self.ranks:
            hello = Hello(
                rank=at,
                local_rank=at % each,
                world_size=ranks,
                pid=FIRST_PID + at,
                host=hosts[at // each],
                device=gpus[at % each].label,
                device_uuid=f"GPU-{at}",
            )
            self.writer.add(hello)
            self.writer.add(Phase(time=self.began, rank=at, phase="training"))
        self.writer.add(facts)
        self.go_on(time.time())

    def go_on(self, until: float) -> None:
        """Record everything up to now, in one commit per interval."""
        while (now := self.began + (self.tick + 1) * TICK_S) <= until:
            self.tick += 1
            step = self.tick * STEPS
            for rank in self.ranks:
                self.writer.add(self._window(now, rank, step))
            if self.tick % round(1 / TICK_S) == 0:
                self._sample(now)
            if step % PER_EPOCH == 0:
                self._evaluate(now, step)
            if self.tick % round(AT_ONCE_S / TICK_S) == 0:
                self.writer.commit()
        self.writer.commit()

    def end(self) -> Path:
        self.writer.commit()
        self.writer.set_state(status="completed", ended=time.time())
        with Record(self.writer.dir) as record:
            self.writer.set_state(summary=record.summary())
        self.writer.close()
        return self.writer.dir

    def _window(self, now: float, rank: int, step: int) -> Window:
        loss = 0.2 + 2.1 * math.exp(-step / 20_000) + self._chosen.gauss(0, 0.05)
        busy = TICK_S * self._chosen.uniform(0.9, 1.0)
        return Window(
            time=now,
            rank=rank,
            epoch=(step - 1) // PER_EPOCH,
            step=step,
            steps=STEPS,
            samples=STEPS * SAMPLES,
            loss_sum=STEPS * SAMPLES * loss,
            loss_min=0.8 * loss,
            loss_max=1.3 * loss,
            lr=0.1 * (1 - step / TOTAL),
            seconds=busy,
            data=0.1 * busy,
            forward=0.25 * busy,
            backward=0.4 * busy,
            comm=self._chosen.uniform(0.1, 0.2) * busy,
            optimizer=0.05 * busy,
            warmup=step <= STEPS,
        )

    def _sample(self, now: float) -> None:
        some = self._chosen.uniform
        for at in self.ranks:
            pid, used = FIRST_PID + at, 40 * GIB + some(0, GIB)
            self.writer.add(
                GpuSample(
                    time=now,
                    gpu=GPUS_PER_HOST * (at // self._each) + at % self._each,
                    uuid=f"GPU-{at}",
                    name="simulated",
                    utilisation=some(85, 100),
                    memory_used=used,
                    memory_total=80.0 * GIB,
                    power=some(500, 600),
                    temperature=some(60, 65),
                    sm_clock=some(1800, 1900),
                    memory_clock=2600.0,
                    energy=550 * (now - self.began),
                    processes={pid: round(used)},
                )
            )
            self.writer.add(
                RankSample(time=now, rank=at, cpu=some(90, 110), rss=some(3e9, 3.1e9), processes=3)
            )
        for node in range(len(self.ranks) // self._each):
            self.writer.add(
                HostSample(
                    time=now,
                    host=node,
                    cpu=some(40, 60),
                    memory_used=some(100, 101) * GIB,
                    memory_total=512.0 * GIB,
                    load=some(8, 12),
                )
            )

    def _evaluate(self, now: float, step: int) -> None:
        for rank in self.ranks:
            self.writer.add(Phase(time=now, rank=rank, phase="evaluating", step=step))
        epoch, right = step // PER_EPOCH, 1 - 0.9 * math.exp(-step / 20_000)
        metrics = {
            "loss": Metric(10_000 * (1.1 - right), 10_000),
            "top1": Metric(10_000 * right, 10_000),
        }
        self.writer.add(
            Evaluation(
                time=now, epoch=epoch, step=step, samples=10_000, seconds=0.1, metrics=metrics
            )
        )
        path = "checkpoints/last.pt"
        self.writer.add(
            Saved(time=now, epoch=epoch, step=step, path=path, seconds=0.1, bytes=GIB, best=True)
        )
        for rank in self.ranks:
            self.writer.add(Phase(time=now, rank=rank, phase="training", step=step))


def simulate(runs: Path, ranks: int, history: float, nodes: int) -> None:
    """Supervise a simulated run until SIGTERM; print its id once it is live."""
    stopped = threading.Event()
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    run = Simulation(runs, ranks, history, nodes)
    print(run.writer.dir.name, flush=True)
    while not stopped.wait(COMMIT_S) and os.getppid() == parent:
        run.go_on(time.time())
    run.end()


@contextmanager
def simulated(runs: Path, ranks: int, history: float, nodes: int = 1) -> Iterator[str]:
    """Yield the id of a run that is live in its own process, and end it afterwards."""
    how = map(str, (runs, ranks, history, nodes))
    command = [sys.executable, "-m", "benchmarks.simulation", *how]
    environment = {**settled_environment(), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        if not run_id:
            raise SystemExit("the simulated run did not begin")
        yield run_id
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def ended_runs(runs: Path, count: int) -> str:
    """Fill a folder with ended runs, a minute apart, and return the newest id."""
    made = Simulation(runs, ranks=2, history=30.0).end()
    with Record(made) as record:
        record.set_meta(notes="made for a benchmark", tags=["bench"])
        state = record.state
    for at in range(count):
        created = state.created - 60.0 * (count - at)
        run_id = new_run_id("bench", created)
        changed = msgspec.structs.replace(
            state,
            run_id=run_id,
            created=created,
            started=created + 1,
            ended=created + 31,
            summary={**(state.summary or {}), "run_id": run_id},
        )
        folder = shutil.copytree(made, runs / run_id, copy_function=_copy)
        (folder / "run.json").write_bytes(msgspec.json.encode(changed))
    shutil.rmtree(made)
    return run_id


def _copy(source: str, target: str) -> None:
    """Copy a file; the database only once, as nobody writes to one of an ended run."""
    if source.endswith(".db"):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    simulate(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
