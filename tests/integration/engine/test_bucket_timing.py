"""The timing of buckets, compared with the times that DDP itself logs."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from distrain.runners import strategies
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.distributed.timing import ClockReading, CpuClock
from distrain.runners.strategies.bucket_timing import BucketTimer, CommHook

RANKS = 2
STEPS = 6
LATE_S = 0.1  # delay of rank 1 in each step
WIDTH = 1000  # of a layer: its parameters fill a whole bucket


class Delayed(torch.autograd.Function):
    """An identity whose backward is slow on rank 1."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 1:
            time.sleep(LATE_S)
        return gradient


class Layers(nn.Module):
    """Two layers; rank 1 is delayed between the gradients of the last and the first one."""

    def __init__(self, statistics: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if statistics else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(Delayed.apply(self.norm(self.first(x))))


@dataclass
class Measured:
    reading: ClockReading
    logged: dict[str, Any]
    gradients: list[torch.Tensor]


def run_steps(
    world: World, model: nn.Module, before_forward: float = 0.0, **changes: Any
) -> Measured:
    """Run a few steps, measured like in the training loop, and logged by DDP."""
    torch.manual_seed(world.rank)
    config = RunConfig().with_changes({"strategy": "ddp", "ddp.bucket_mb": 1.0, **changes})
    clock = CpuClock()
    strategy = strategies.build(config, world)
    wrapped: Any = strategy.wrap(model, clock)
    wrapped._set_ddp_runtime_logging_sample_rate(1)
    x = torch.randn(8, WIDTH)
    clock.start()
    for _ in range(STEPS):
        model.zero_grad()
        time.sleep(before_forward)
        clock.mark("data")
        loss = wrapped(x).pow(2).mean()
        clock.mark("forward")
        (loss * strategy.weight(8, 16)).backward()
        strategy.reduce(model, clock)
        clock.mark("optimizer")
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return Measured(clock.close().get(), wrapped._get_ddp_logging_data(), gradients)


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    world = World(rank, rank, RANKS, torch.device("cpu"))
    delay_of_data = LATE_S if rank == 0 else 0.0
    run_steps(world, Layers())  # the first step contains the start of the other rank
    found = {
        "plain": run_steps(world, Layers()),
        "compressed": run_steps(world, Layers(), **{"ddp.comm_hook": "fp16_compress"}),
        "statistics": run_steps(world, Layers(statistics=True), delay_of_data),
    }
    torch.save(found, f"{folder}/rank-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Measured]]:
    """Return the measurement of each case, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, args=(folder,), nprocs=RANKS)
        return [torch.load(f"{folder}/rank-{rank}.pt", weights_only=False) for rank in range(RANKS)]


@pytest.mark.parametrize("case", ["plain", "compressed"])
def test_the_delay_of_a_slow_rank_is_communication_on_the_other(
    case: str, measured: list[dict[str, Measured]]
) -> None:
    punctual, late = (rank[case].reading for rank in measured)
    delay = STEPS * LATE_S
    assert late.phases["backward"] - punctual.phases["backward"] > 0.5 * delay
    assert punctual.phases["comm"] - late.phases["comm"] > 0.5 * delay


@pytest.mark.parametrize("case", ["plain", "compressed"])
def test_communication_during_backward_is_overlap(
    case: str, measured: list[dict[str, Measured]]
) -> None:
    # The first bucket is reduced while rank 1 sleeps in its backward; rank 0 does not sleep.
    punctual, late = (rank[case].reading for rank in measured)
    assert late.overlap > 0
    for reading in (punctual, late):
        assert reading.overlap <= reading.phases["backward"]
        assert reading.wait <= reading.overlap + reading.phases["comm"]


def test_the_times_agree_with_ddps_own_logging_data(measured: list[dict[str, Measured]]) -> None:
    # On rank 0 one bucket follows the other; DDP counts from the start of the first one to the
    # end of the last one, gaps included.
    reading, logged = measured[0]["plain"].reading, measured[0]["plain"].logged
    whole, hidden, computing = (
        STEPS * logged[f"avg_backward_{name}_time"] / 1e9
        for name in ("comm", "compute_comm_overlap", "compute")
    )
    for own, logged_by_ddp in (
        (reading.phases["comm"], whole - hidden),
        (reading.phases["comm"] + reading.overlap, whole),
        (reading.phases["backward"], computing),
    ):
        assert logged_by_ddp / 2 < own < 2 * logged_by_ddp


def test_a_gap_between_two_buckets_is_not_overlap(measured: list[dict[str, Measured]]) -> None:
    # Rank 1 sleeps for longer than its first bucket takes: DDP counts all of that time.
    reading, logged = measured[1]["plain"].reading, measured[1]["plain"].logged
    with_gap = STEPS * logged["avg_backward_compute_comm_overlap_time"] / 1e9
    assert 0 < reading.overlap < with_gap


def test_waiting_for_buffers_is_communication_not_forward(
    measured: list[dict[str, Measured]],
) -> None:
    # given rank 0 late before its forward, and running statistics for which the other rank waits
    late, punctual = (rank["statistics"].reading for rank in measured)
    delay = STEPS * LATE_S
    assert late.phases["data"] > 0.9 * delay
    assert punctual.phases["forward"] - late.phases["forward"] < 0.5 * delay


def test_gradients_are_equal_on_all_ranks(measured: list[dict[str, Measured]]) -> None:
    first, second = (rank["plain"].gradients for rank in measured)
    for gradient, other in zip(first, second, strict=True):
        assert torch.equal(gradient, other)


def test_an_error_of_a_reduction_is_raised_in_backward() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            wrapped = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
            BucketTimer(wrapped, CpuClock(), _failing_hook(), None)
            with pytest.raises(RuntimeError, match="the cable is cut"):
                wrapped(torch.ones(1, 2)).sum().backward()
        finally:
            dist.destroy_process_group()


def _failing_hook() -> CommHook:
    @wraps(allreduce_hook)  # DDP checks the annotations
    def fail(state: Any, bucket: Any) -> Any:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_exception(RuntimeError("the cable is cut"))
        return future

    return fail
