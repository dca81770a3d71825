"""What each strategy keeps equal over ranks, and how often it communicates for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from models.build import build_task
from runners import strategies
from runners.clock import CpuClock
from runners.config import RunConfig
from runners.devices import Device
from runners.evaluate import evaluate
from runners.loading import evaluation_batches
from runners.loop import train
from runners.plan import make_plan
from runners.reporter import NullReporter
from runners.training import Training
from runners.world import World

RANKS = 2
STRATEGIES = ("ddp", "allreduce")


class Normed(nn.Module):
    """Float and integer buffers, parameters of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)
        self.exact = nn.Parameter(torch.randn(3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(x)) + self.exact.sum().float()


def config(strategy: str, **changes: Any) -> RunConfig:
    base: dict[str, Any] = {
        "strategy": strategy,
        "launcher": "spawn",
        "devices": f"cpu:{RANKS}",
        "train.epochs": 2,
        "train.batch_size": 32,
        "train.lr": 0.05,
        "data.train_limit": 150,
        "data.eval_limit": 50,
        "checkpoint.keep": 0,
    }
    return RunConfig().with_changes(
        {**base, **{k.replace("__", "."): v for k, v in changes.items()}}
    )


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


# --- what every rank does; each function gives something to look at -----------------------------


def start(name: str, world: World) -> dict[str, Any]:
    """Weights and buffers before and after wrapping, on ranks that were seeded differently."""
    torch.manual_seed(100 + world.rank)
    model = Normed()
    model.norm.running_mean.fill_(world.rank)  # type: ignore[union-attr]
    before = tensors(model)
    strategies.build(config(name), world).wrap(model, CpuClock())
    return {"before": before, "after": tensors(model)}


def drift(name: str, world: World) -> dict[str, Any]:
    """Buffers after a step on data of one's own, and after `sync_buffers`."""
    torch.manual_seed(0)
    model, clock = Normed(), CpuClock()
    clock.start()
    strategy = strategies.build(config(name), world)
    wrapped = strategy.wrap(model, clock)
    wrapped(torch.full((3, 4), float(world.rank)) + torch.randn(3, 4)).sum().backward()
    strategy.reduce(model, clock)
    before = tensors(model)
    strategy.sync_buffers(model)
    return {"before": before, "after": tensors(model)}


def trained(name: str, world: World) -> dict[str, Any]:
    """A network with BatchNorm after training by the loop, which ends with an evaluation."""
    run = training(config(name, model__name="tests.engine.test_strategies:normed_network"), world)
    train(run)
    return tensors(run.model)


def normed_network(*, shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))


def communication(name: str, world: World) -> dict[str, int]:
    """All-reduces of a training with three micro-batches a step, and one evaluation."""
    run = training(config(name, train__accumulate=3, eval__every_epochs=0), world)
    with calls_counted() as calls:
        train(run)
    return {"steps": run.step, "all_reduce": calls[0]}


def evaluation(name: str, world: World) -> int:
    """Collectives of one evaluation."""
    run = training(config(name), world)
    batches = evaluation_batches(run.task, run.config, run.plan, world.rank, run._mover)
    with calls_counted() as calls:
        evaluate(run.task, run.model, batches, run.precision, world)
    return calls[0]


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    was, calls = vars(dist.ProcessGroup)["allreduce"], [0]  # as it is there, to be put back so

    def counting(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        return was.__get__(args[0])(*args[1:], **options)

    dist.ProcessGroup.allreduce = counting  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        dist.ProcessGroup.allreduce = was  # type: ignore[method-assign]


def training(case: RunConfig, world: World) -> Training:
    plan = make_plan(case, [Device(kind="cpu", index=index) for index in range(world.size)])
    torch.manual_seed(0)
    task = build_task(case.task, case.model, case.data)
    return Training(case, plan, world, task, NullReporter(), Path("nowhere"))


LOOKS: dict[str, Callable[[str, World], Any]] = {
    "start": start,
    "drift": drift,
    "trained": trained,
    "communication": communication,
    "evaluation": evaluation,
}


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    world = World(rank, rank, RANKS, torch.device("cpu"))
    found = {(name, look): LOOKS[look](name, world) for name in STRATEGIES for look in LOOKS}
    torch.save(found, f"{folder}/rank-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def seen() -> list[dict[tuple[str, str], Any]]:
    """By rank, what each look at each strategy gave."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, args=(folder,), nprocs=RANKS)
        return [torch.load(f"{folder}/rank-{rank}.pt", weights_only=False) for rank in range(RANKS)]


# --- what must hold ------------------------------------------------------------------------------


def assert_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


Seen = list[dict[tuple[str, str], Any]]


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_begin_with_the_weights_and_buffers_of_rank_0(name: str, seen: Seen) -> None:
    first, second = (rank[name, "start"] for rank in seen)
    assert not torch.equal(first["before"]["last.weight"], second["before"]["last.weight"])
    assert_equal(first["after"], first["before"])
    assert_equal(second["after"], first["before"])


@pytest.mark.parametrize("name", STRATEGIES)
def test_buffers_that_have_drifted_become_those_of_rank_0(name: str, seen: Seen) -> None:
    first, second = (rank[name, "drift"] for rank in seen)
    mean = "norm.running_mean"
    assert not torch.equal(first["before"][mean], second["before"][mean])
    assert_equal(first["after"], first["before"])
    assert_equal(second["after"], first["before"])
    assert first["after"]["norm.num_batches_tracked"] == 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_running_statistics_are_equal_after_training(name: str, seen: Seen) -> None:
    first, second = (rank[name, "trained"] for rank in seen)
    assert first["1.num_batches_tracked"] > 0
    assert_equal(first, second)


@pytest.mark.parametrize("name", STRATEGIES)
def test_gradients_are_reduced_once_a_step_whatever_the_micro_batches(
    name: str, seen: Seen
) -> None:
    for rank in seen:
        counted = rank[name, "communication"]
        assert counted["steps"] == 10
        assert counted["all_reduce"] == 10 + rank[name, "evaluation"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_evaluation_communicates_once(name: str, seen: Seen) -> None:
    assert [rank[name, "evaluation"] for rank in seen] == [1, 1]
