"""Batches of a rank: which samples, in which order, by which loader processes, how seeded."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from models.task import Sums, Task
from runners.config import RunConfig
from runners.devices import Device
from runners.loading import Batches, Mover, evaluation_batches, permutation_of, tensors_of
from runners.order import Order
from runners.plan import Plan, make_plan

# Python 3.12 warns where a process with threads forks; loader processes take it into account.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SAMPLES, EVAL = 37, 23


class Indices(Dataset[Tensor]):
    """Samples that are their own index."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(index)


class Keyed(Indices):
    """Asked by (epoch, index), and gives both."""

    wants_epoch = True

    def __getitem__(self, key: Any) -> Tensor:
        return torch.tensor(key)


class Whole(Indices):
    """Gives whole batches."""

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        return torch.tensor(indices)


class Dice(Indices):
    """What each generator gives in the process that loads, and which process it is."""

    def __getitem__(self, index: int) -> Tensor:
        draws = (random.random(), np.random.random(), torch.rand(()).item())
        return torch.tensor([*draws, os.getpid()], dtype=torch.float64)


class Plain(Task):
    def __init__(self, train: Dataset[Any]) -> None:
        self.model, self.train, self.eval = nn.Identity(), train, Indices(EVAL)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise AssertionError("only its batches are looked at")

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        raise AssertionError("only its batches are looked at")


def planned(ranks: int = 2, **changes: Any) -> tuple[RunConfig, Plan]:
    config = RunConfig().with_changes(
        {"train.batch_size": 8, **{k.replace("__", "."): v for k, v in changes.items()}}
    )
    return config, make_plan(config, [Device(kind="cpu", index=index) for index in range(ranks)])


def mover(task: Task) -> Mover:
    return Mover(task, torch.device("cpu"), channels_last=False)


def batches_of(rank: int, task: Task, ranks: int = 2, **changes: Any) -> Batches:
    config, plan = planned(ranks, **changes)
    return Batches(task, config, plan, rank, mover(task))


def order(ranks: int = 2) -> Order:
    return Order(SAMPLES, 8, ranks)


def epoch_of(batches: Batches, epoch: int, ranks: int = 2) -> list[Any]:
    return [batch.tolist() for batch in batches.epoch(epoch, order(ranks))]


def flat(batches: list[Any]) -> list[Any]:
    return [sample for batch in batches for sample in batch]


@pytest.mark.parametrize("kind", [Indices, Whole])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_epoch_gives_every_sample_once_over_the_ranks(kind: Any, ranks: int) -> None:
    task = Plain(kind(SAMPLES))
    seen = [flat(epoch_of(batches_of(rank, task, ranks), 0, ranks)) for rank in range(ranks)]
    assert sorted(flat(seen)) == list(range(SAMPLES))


def test_the_order_changes_with_every_epoch_and_seed() -> None:
    batches, other = batches_of(0, Plain(Whole(SAMPLES))), permutation_of(0, 1, SAMPLES)
    orders = [flat(epoch_of(batches, epoch)) for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert permutation_of(0, 0, SAMPLES) != other != list(range(SAMPLES))


def test_the_order_of_an_epoch_is_always_the_same() -> None:
    fresh, used = (batches_of(1, Plain(Whole(SAMPLES))) for _ in range(2))
    epoch_of(used, 0)
    assert epoch_of(fresh, 5) == epoch_of(used, 5)


def test_a_steps_samples_are_the_same_for_any_number_of_ranks() -> None:
    task = Plain(Whole(SAMPLES))
    by_ranks = []
    for ranks in (1, 2, 4):
        steps = zip(
            *(epoch_of(batches_of(rank, task, ranks), 3, ranks) for rank in range(ranks)),
            strict=True,
        )
        by_ranks.append([set(flat(list(parts))) for parts in steps])
    assert by_ranks[0] == by_ranks[1] == by_ranks[2]


def test_an_epoch_left_half_way_does_not_disturb_the_next() -> None:
    task = Plain(Whole(SAMPLES))
    for workers in (0, 2):
        batches = batches_of(0, task, data__workers=workers)
        next(batches.epoch(0, order()))
        assert epoch_of(batches, 1) == epoch_of(batches_of(0, task), 1)


def test_who_augments_by_epoch_is_told_the_epoch() -> None:
    keys = flat(epoch_of(batches_of(0, Plain(Keyed(SAMPLES)), 1), 7, 1))
    assert sorted(keys) == [[7, index] for index in range(SAMPLES)]


def test_loader_workers_are_a_total_that_the_ranks_share() -> None:
    # given three loader workers for two ranks
    task = Plain(Dice(SAMPLES))
    pids = []
    for rank in range(2):
        batches = batches_of(rank, task, data__workers=3, train__batch_size=4)
        drawn = list(batches.epoch(0, Order(SAMPLES, 4, 2)))
        pids.append({int(sample[3]) for batch in drawn for sample in batch})
    # then they are two and one, none of them the rank itself
    assert [len(own) for own in pids] == [2, 1]
    assert os.getpid() not in flat([list(own) for own in pids])


def test_loader_workers_live_on_from_epoch_to_epoch() -> None:
    batches = batches_of(0, Plain(Dice(SAMPLES)), 1, data__workers=1)
    first, second = (
        {int(sample[3]) for batch in batches.epoch(epoch, order(1)) for sample in batch}
        for epoch in range(2)
    )
    assert first == second


def test_loader_workers_draw_numbers_of_their_own_and_the_same_ones_again() -> None:
    def draws(rank: int, seed: int = 0) -> list[tuple[float, ...]]:
        batches = batches_of(
            rank, Plain(Dice(SAMPLES)), data__workers=4, train__batch_size=8, train__seed=seed
        )
        return [tuple(sample[:3]) for sample in flat(epoch_of(batches, 0))]

    first, second, again = draws(0), draws(1), draws(0)
    # the two workers of each of two ranks never draw the same, by any generator
    for generator in range(3):
        everything = [numbers[generator] for numbers in first + second]
        assert len(set(everything)) == len(everything)
    assert again == first
    assert draws(0, seed=1) != first


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 100])
def test_evaluation_gives_every_sample_once_unpadded(ranks: int, batch_size: int | None) -> None:
    task = Plain(Indices(SAMPLES))
    config, plan = planned(ranks, eval__batch_size=batch_size)
    seen: list[int] = []
    for rank in range(ranks):
        for batch, count in evaluation_batches(task, config, plan, rank, mover(task)):
            assert len(batch) == count
            seen += batch.tolist()
    assert seen == list(range(EVAL))


def test_a_rank_without_an_evaluation_sample_takes_part_and_counts_for_nothing() -> None:
    task = Plain(Indices(SAMPLES))
    task.eval = Indices(2)
    config, plan = planned(3)
    parts = [list(evaluation_batches(task, config, plan, rank, mover(task))) for rank in range(3)]
    assert [[count for _, count in part] for part in parts] == [[1], [1], [0]]
    assert len(parts[2][0][0]) == 1


def test_tensors_are_found_in_whatever_holds_them() -> None:
    a, b, c = (torch.tensor(number) for number in range(3))
    assert list(tensors_of({"x": [a, (b, "text")], "y": {"z": c, "n": 1}})) == [a, b, c]
