"""What each strategy keeps equal on all ranks, and how often it communicates."""

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

from distrain.models.build import build_task
from distrain.models.classification import Classification
from distrain.models.data import Data
from distrain.runners import strategies
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.distributed.timing import CpuClock
from distrain.runners.protocol.events import Window
from distrain.runners.protocol.reporter import NullReporter
from distrain.runners.system.devices import Device
from distrain.runners.training.evaluation import evaluate
from distrain.runners.training.loop import train
from distrain.runners.training.trainer import Training
from tests.integration.engine.ranks import run_case, run_on_ranks

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


class Overflowing(Classification):
    """A task of which the gradients of one step overflow in fp16."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)
        self.steps = 0

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        self.steps += 1
        loss: torch.Tensor = super().loss(model, batch)
        return loss * 1e6 if self.steps == 5 else loss


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


def copy_state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


# --- what every rank runs; each function returns an observation ---------------------------------


def start(name: str, world: World) -> dict[str, Any]:
    """Return weights and buffers before and after wrapping, on ranks with different seeds."""
    torch.manual_seed(100 + world.rank)
    model = Normed()
    model.norm.running_mean.fill_(world.rank)  # type: ignore[union-attr]
    before = copy_state(model)
    strategies.build(config(name), world).wrap(model, CpuClock())
    return {"before": before, "after": copy_state(model)}


def drift(name: str, world: World) -> dict[str, Any]:
    """Return buffers after a step on the rank's own data, and after `sync_buffers`."""
    torch.manual_seed(0)
    model = Normed()
    clock = CpuClock()
    clock.start()
    strategy = strategies.build(config(name), world)
    wrapped = strategy.wrap(model, clock)
    wrapped(torch.full((3, 4), float(world.rank)) + torch.randn(3, 4)).sum().backward()
    strategy.reduce(model, clock)
    before = copy_state(model)
    strategy.sync_buffers(model)
    return {"before": before, "after": copy_state(model)}


def trained(name: str, world: World) -> dict[str, Any]:
    """Return a network with BatchNorm after training and a final evaluation."""
    run = make_training(
        config(name, model__name="tests.integration.engine.test_strategies:normed_network"), world
    )
    train(run)
    return copy_state(run.model)


def normed_network(*, shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))


def communication(name: str, world: World) -> dict[str, int]:
    """Count the all-reduces of training with three micro-batches per step, and one evaluation."""
    run = make_training(config(name, train__accumulate=3, eval__every_epochs=0), world)
    with count_all_reduces() as calls:
        train(run)
    return {"steps": run.step, "all_reduce": calls[0]}


def evaluation(name: str, world: World) -> int:
    """Count the collectives of one evaluation."""
    run = make_training(config(name), world)
    with count_all_reduces() as calls:
        evaluate(run.task, run.model, run.evaluation_batches, run.precision, world)
    return calls[0]


@contextmanager
def count_all_reduces() -> Iterator[list[int]]:
    original = vars(dist.ProcessGroup)["allreduce"]  # the descriptor, so that it can be restored
    calls = [0]

    def counting(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        return original.__get__(args[0])(*args[1:], **options)

    dist.ProcessGroup.allreduce = counting  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        dist.ProcessGroup.allreduce = original  # type: ignore[method-assign]


def make_training(case: RunConfig, world: World) -> Training:
    plan = plan_here(case, [Device(kind="cpu", index=index) for index in range(world.size)])
    torch.manual_seed(0)
    task = build_task(case.task, case.model, case.data)
    return Training(case, plan, world, task, NullReporter(), Path("nowhere"))


OBSERVATIONS: dict[str, Callable[[str, World], Any]] = {
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
    found = {
        (name, kind): observe(name, world)
        for name in STRATEGIES
        for kind, observe in OBSERVATIONS.items()
    }
    torch.save(found, f"{folder}/rank-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def observed() -> list[dict[tuple[str, str], Any]]:
    """Return the observations by rank, then by strategy and kind."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, args=(folder,), nprocs=RANKS)
        return [torch.load(f"{folder}/rank-{rank}.pt", weights_only=False) for rank in range(RANKS)]


# --- what must be true ---------------------------------------------------------------------------


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


Observed = list[dict[tuple[str, str], Any]]


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_ranks_start_with_the_weights_and_buffers_of_rank_0(
    name: str, observed: Observed
) -> None:
    first, second = (rank[name, "start"] for rank in observed)
    assert not torch.equal(first["before"]["last.weight"], second["before"]["last.weight"])
    assert_equal(first["after"], first["before"])
    assert_equal(second["after"], first["before"])


@pytest.mark.parametrize("name", STRATEGIES)
def test_synchronised_buffers_are_those_of_rank_0(name: str, observed: Observed) -> None:
    first, second = (rank[name, "drift"] for rank in observed)
    mean = "norm.running_mean"
    assert not torch.equal(first["before"][mean], second["before"][mean])
    assert_equal(first["after"], first["before"])
    assert_equal(second["after"], first["before"])
    assert first["after"]["norm.num_batches_tracked"] == 1


@pytest.mark.parametrize("name", STRATEGIES)
def test_running_statistics_are_equal_after_training(name: str, observed: Observed) -> None:
    first, second = (rank[name, "trained"] for rank in observed)
    assert first["1.num_batches_tracked"] > 0
    assert_equal(first, second)


@pytest.mark.parametrize("name", STRATEGIES)
def test_gradients_are_reduced_once_per_step_for_any_micro_batches(
    name: str, observed: Observed
) -> None:
    for rank in observed:
        counted = rank[name, "communication"]
        assert counted["steps"] == 10
        check = 1  # of the names of the metrics, before the first step
        assert counted["all_reduce"] == check + 10 + rank[name, "evaluation"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_evaluation_communicates_once(name: str, observed: Observed) -> None:
    assert [rank[name, "evaluation"] for rank in observed] == [1, 1]


@pytest.mark.parametrize("hook", ["none", "powerSGD"])
def test_an_overflow_in_fp16_skips_one_step(hook: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "task.name": "tests.integration.engine.test_strategies:Overflowing",
        "precision": "fp16",
        "ddp.comm_hook": hook,
        "ddp.powersgd_start": 2,
        "report.window_s": 1e-9,
    }
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        world = World(0, 0, 1, torch.device("cpu"))
        _, reporter = run_case(config("ddp").with_changes(changes), world, tmp_path)
    finally:
        dist.destroy_process_group()
    skipped = [window.step for window in reporter.events_of(Window) if window.skipped]
    assert skipped == [5]


def test_ranks_reduce_several_buckets_in_one_order_with_powersgd(tmp_path: Path) -> None:
    changes = {
        "ddp.comm_hook": "powerSGD",
        "ddp.powersgd_start": 2,
        "ddp.bucket_mb": 0.02,
        "model.args": {"hidden": [64] * 6},
        "train.epochs": 8,
    }
    case = config("ddp").with_changes(changes)
    ((first, second),) = run_on_ranks(RANKS, [(case, tmp_path)])
    assert all(first.model[name].equal(second.model[name]) for name in first.model)
