"""Several ranks of one gloo group that run our real loop, many cases in one start."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from runners.config import RunConfig
from runners.devices import Device
from runners.events import Evaluation, Event, Finished, Window
from runners.loop import train
from runners.plan import make_plan
from runners.reporter import NullReporter
from runners.training import Training, make_training
from runners.verification.tap import attach
from runners.world import World

PATIENCE_S = 240.0


@dataclass
class Outcome:
    """What rank 0 has at the end of a case; tensors are copies."""

    model: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    evaluations: list[Evaluation]
    windows: list[Window]
    order: list[Any] = field(default_factory=list)


class Recorder(NullReporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Event] = []

    def say(self, event: Event) -> None:
        self.said.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.said if isinstance(event, kind)]


class Stopped(Recorder):
    """Asks for a stop after a step."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def goes_on(self, step: int) -> bool:
        return super().goes_on(step) and step < self._after


def run_case(
    config: RunConfig,
    world: World,
    folder: Path,
    reporter: Recorder | None = None,
    tapped: bool = False,
) -> tuple[Training, Recorder]:
    """One case on this rank, from building the task to the last event; `tapped` leaves in the
    folder what verification compares.
    """
    plan = make_plan(config, [Device(kind="cpu", index=index) for index in range(world.size)])
    reporter = reporter or Recorder()
    run = make_training(config, plan, world, reporter, folder)
    if tapped:
        attach(run, folder)
    train(run)
    return run, reporter


def outcome(run: Training, reporter: Recorder) -> Outcome:
    assert reporter.of(Finished)
    return Outcome(
        {name: tensor.clone() for name, tensor in run.model.state_dict().items()},
        run.optimizer.state_dict(),
        reporter.of(Evaluation),
        reporter.of(Window),
    )


def on_ranks(
    size: int, cases: list[tuple[RunConfig, Path]], tapped: bool = False
) -> list[list[Outcome]]:
    """Outcomes by case, then by rank; one process for each rank serves all cases."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        # Comm hooks may compute in threads of gloo's, which `set_num_threads` does not reach.
        patched.setenv("OMP_NUM_THREADS", "1")
        context = mp.spawn(_rank, args=(size, cases, folder, tapped), nprocs=size, join=False)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not context.join(timeout=1.0):
                assert time.monotonic() < deadline, "the ranks hang"
        finally:
            for process in context.processes:
                process.kill()
        by_rank = [
            torch.load(f"{folder}/rank-{rank}.pt", weights_only=False) for rank in range(size)
        ]
    return [[ranks[case] for ranks in by_rank] for case in range(len(cases))]


def _rank(
    rank: int, size: int, cases: list[tuple[RunConfig, Path]], folder: str, tapped: bool
) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    world = World(rank, rank, size, torch.device("cpu"))
    outcomes = []
    for config, path in cases:
        outcomes.append(outcome(*run_case(config, world, path, tapped=tapped)))
        dist.barrier()  # the next case may load what rank 0 has just written
    torch.save(outcomes, f"{folder}/rank-{rank}.pt")
    dist.destroy_process_group()


def alone(config: RunConfig, folder: Path, reporter: Recorder | None = None) -> Outcome:
    """The case in this process, as a group of one."""
    return outcome(*run_case(config, World(0, 0, 1, torch.device("cpu")), folder, reporter))
