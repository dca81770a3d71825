"""Communication is measured where it happens: the hook's stamps beside DDP's own logging data."""

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

from runners import strategies
from runners.clock import CpuClock, Reading
from runners.config import RunConfig
from runners.strategies.wire import Hook, Wire
from runners.world import World

RANKS, STEPS = 2, 6
LATE_S = 0.1  # of rank 1 in each step
WIDE = 1000  # parameters of a layer: one fills a bucket of its own


class Delayed(torch.autograd.Function):
    """Backward through it takes its time on rank 1."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 1:
            time.sleep(LATE_S)
        return gradient


class Layers(nn.Module):
    """The last layer's gradient leaves first; between it and the first one rank 1 is late."""

    def __init__(self, statistics: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)
        self.norm = nn.BatchNorm1d(WIDE) if statistics else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(Delayed.apply(self.norm(self.first(x))))


@dataclass
class Seen:
    reading: Reading
    logged: dict[str, Any]
    gradients: list[torch.Tensor]


def steps(world: World, model: nn.Module, before_forward: float = 0.0, **changes: Any) -> Seen:
    """A few steps, measured as the loop does it; DDP logs each of them as well."""
    torch.manual_seed(world.rank)
    config = RunConfig().with_changes({"strategy": "ddp", "ddp.bucket_mb": 1.0, **changes})
    clock = CpuClock()
    strategy = strategies.build(config, world)
    wrapped: Any = strategy.wrap(model, clock)
    wrapped._set_ddp_runtime_logging_sample_rate(1)
    x = torch.randn(8, WIDE)
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
    return Seen(clock.close().get(), wrapped._get_ddp_logging_data(), gradients)


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    world = World(rank, rank, RANKS, torch.device("cpu"))
    late_in_data = LATE_S if rank == 0 else 0.0
    found = {
        "plain": steps(world, Layers()),
        "narrow": steps(world, Layers(), **{"ddp.comm_hook": "fp16_compress"}),
        "statistics": steps(world, Layers(statistics=True), late_in_data),
    }
    torch.save(found, f"{folder}/rank-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def seen() -> list[dict[str, Seen]]:
    """By rank, what was measured of each case."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, args=(folder,), nprocs=RANKS)
        return [torch.load(f"{folder}/rank-{rank}.pt", weights_only=False) for rank in range(RANKS)]


@pytest.mark.parametrize("case", ["plain", "narrow"])
def test_what_a_late_rank_costs_is_exposed_on_the_others(
    case: str, seen: list[dict[str, Seen]]
) -> None:
    punctual, late = (rank[case].reading for rank in seen)
    delay = STEPS * LATE_S
    assert late.phases["backward"] - punctual.phases["backward"] > 0.5 * delay
    assert punctual.phases["comm"] - late.phases["comm"] > 0.5 * delay


@pytest.mark.parametrize("case", ["plain", "narrow"])
def test_what_travels_behind_backward_is_overlapped(case: str, seen: list[dict[str, Seen]]) -> None:
    # The first bucket travels while rank 1 sleeps in its backward, which rank 0 does not.
    punctual, late = (rank[case].reading for rank in seen)
    assert late.overlap > 0
    for reading in (punctual, late):
        assert reading.overlap <= reading.phases["backward"]
        assert reading.wait <= reading.overlap + reading.phases["comm"]


def test_ddps_own_logging_data_says_the_same(seen: list[dict[str, Seen]]) -> None:
    # On rank 0 one bucket follows the other; DDP counts from the first one's leaving to the last
    # one's end, gaps included.
    reading, logged = seen[0]["plain"].reading, seen[0]["plain"].logged
    whole, hidden, computing = (
        STEPS * logged[f"avg_backward_{name}_time"] / 1e9
        for name in ("comm", "compute_comm_overlap", "compute")
    )
    for ours, theirs in (
        (reading.phases["comm"], whole - hidden),
        (reading.phases["comm"] + reading.overlap, whole),
        (reading.phases["backward"], computing),
    ):
        assert theirs / 2 < ours < 2 * theirs


def test_a_gap_between_two_buckets_is_no_communication(seen: list[dict[str, Seen]]) -> None:
    # Rank 1 sleeps while its first bucket comes back, and longer: DDP's figure has all of it.
    reading, logged = seen[1]["plain"].reading, seen[1]["plain"].logged
    theirs = STEPS * logged["avg_backward_compute_comm_overlap_time"] / 1e9
    assert 0 < reading.overlap < theirs


def test_waiting_for_buffers_is_communication_not_forward(seen: list[dict[str, Seen]]) -> None:
    # given rank 0 late before its forward, and running statistics that the other one waits for
    late, punctual = (rank["statistics"].reading for rank in seen)
    delay = STEPS * LATE_S
    assert late.phases["data"] > 0.9 * delay
    assert punctual.phases["forward"] - late.phases["forward"] < 0.5 * delay


def test_gradients_are_those_of_the_mean_over_all_samples(seen: list[dict[str, Seen]]) -> None:
    first, second = (rank["plain"].gradients for rank in seen)
    for ours, theirs in zip(first, second, strict=True):
        assert torch.equal(ours, theirs)


def test_an_error_on_the_wire_is_raised_in_backward() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            wrapped = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
            Wire(wrapped, CpuClock(), _broken(), None)
            with pytest.raises(RuntimeError, match="the cable is cut"):
                wrapped(torch.ones(1, 2)).sum().backward()
        finally:
            dist.destroy_process_group()


def _broken() -> Hook:
    @wraps(allreduce_hook)  # for DDP checks annotations
    def cut(state: Any, bucket: Any) -> Any:
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_exception(RuntimeError("the cable is cut"))
        return future

    return cut
