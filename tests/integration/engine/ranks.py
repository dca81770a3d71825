"""Ranks of one gloo group that run many cases of the real training loop."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.protocol.events import Evaluation, Finished, Window
from distrain.runners.system.devices import Device
from distrain.runners.training.loop import train
from distrain.runners.training.tap import attach
from distrain.runners.training.trainer import Training, make_training
from tests.support.reporters import RecordingReporter

TIMEOUT_S = 240.0


@dataclass
class Outcome:
    """The results of a rank at the end of a case; tensors are copies."""

    model: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    evaluations: list[Evaluation]
    windows: list[Window]
    order: list[Any] = field(default_factory=list)


class StoppingRecorder(RecordingReporter):
    """Requests a stop after a step."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._after = after

    def should_continue(self, step: int) -> bool:
        return super().should_continue(step) and step < self._after


def run_case(
    config: RunConfig,
    world: World,
    folder: Path,
    reporter: RecordingReporter | None = None,
    tapped: Sequence[int] = (),
) -> tuple[Training, RecordingReporter]:
    """Run one case on this rank, from building the task to the last event.

    `tapped` are the steps of which it writes the files that verification compares.
    """
    plan = plan_here(config, [Device(kind="cpu", index=index) for index in range(world.size)])
    reporter = reporter or RecordingReporter()
    folder.mkdir(exist_ok=True)
    run = make_training(config, plan, world, reporter, folder)
    if tapped:
        attach(run, folder, tapped)
    train(run)
    return run, reporter


def make_outcome(run: Training, reporter: RecordingReporter) -> Outcome:
    assert reporter.events_of(Finished)
    return Outcome(
        {name: tensor.clone() for name, tensor in run.model.state_dict().items()},
        run.optimizer.state_dict(),
        reporter.events_of(Evaluation),
        reporter.events_of(Window),
    )


def run_on_ranks(
    size: int, cases: list[tuple[RunConfig, Path]], tapped: Sequence[int] = ()
) -> list[list[Outcome]]:
    """Return outcomes by case, then by rank; each rank runs all cases in one process."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        # Comm hooks may compute in threads of gloo, to which `set_num_threads` does not apply.
        patched.setenv("OMP_NUM_THREADS", "1")
        context = mp.spawn(_rank, args=(size, cases, folder, tapped), nprocs=size, join=False)
        try:
            deadline = time.monotonic() + TIMEOUT_S
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
    rank: int,
    size: int,
    cases: list[tuple[RunConfig, Path]],
    folder: str,
    tapped: Sequence[int],
) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    world = World(rank, rank, size, torch.device("cpu"))
    outcomes = []
    for config, path in cases:
        outcomes.append(make_outcome(*run_case(config, world, path, tapped=tapped)))
        dist.barrier()  # the next case may load a checkpoint that rank 0 has just written
    torch.save(outcomes, f"{folder}/rank-{rank}.pt")
    dist.destroy_process_group()


def run_alone(
    config: RunConfig, folder: Path, reporter: RecordingReporter | None = None
) -> Outcome:
    """Run the case in this process, as a group of one."""
    return make_outcome(*run_case(config, World(0, 0, 1, torch.device("cpu")), folder, reporter))
