"""Ranks with different data are found before the first step."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from distrain.models.data import FirstSamples, TensorData
from distrain.models.errors import TaskError
from distrain.runners.training.data_check import check_data, content_of, has_objects


class Points(Dataset[Any]):
    """Samples that opened files and calls are counted of; `draw` returns a sample's numbers."""

    def __init__(self, draw: Callable[[], Tensor], length: int = 10) -> None:
        self.draw, self.length = draw, length
        self.reads = [0]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.reads[0] += 1
        return self.draw(), f"/of/this/host/{id(self)}"


def check(of_rank: Any, of_leader: Any) -> None:
    """Check the data of rank 1 with those that rank 0 has."""
    sent: list[Tensor] = []

    def run(world: Any, data: Any) -> Any:
        task = SimpleNamespace(train=data, eval=None)
        return SimpleNamespace(task=task, world=world, epochs=SimpleNamespace(is_endless=False))

    device = torch.device("cpu")
    leader = SimpleNamespace(rank=0, size=2, device=device, broadcast_=sent.append)
    check_data(run(leader, of_leader))
    world = SimpleNamespace(
        rank=1, size=2, device=device, broadcast_=lambda tensor: tensor.copy_(sent[0])
    )
    check_data(run(world, of_rank))


def numbers(value: float) -> Callable[[], Tensor]:
    return lambda: torch.tensor([value, 2.0])


@pytest.mark.parametrize(
    ("of_rank", "sentence"),
    [
        (Points(numbers(1), 9), "are 9 samples on rank 1 and 10 on rank 0"),
        (Points(numbers(3)), "begin with another sample on rank 1 than on rank 0"),
        (FirstSamples(Points(lambda: torch.ones(3)), 10), "of class Points, begin with another"),
    ],
)
def test_other_data_on_another_rank_are_named(of_rank: Any, sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence):
        check(of_rank, Points(numbers(1)))


def test_random_samples_and_the_rounding_of_decoders_are_no_other_data() -> None:
    check(Points(numbers(1.0001)), Points(numbers(1)))
    check(Points(lambda: torch.rand(2)), Points(lambda: torch.rand(2)))
    own = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    unseeded = [Points(lambda each=each: torch.rand(2, generator=each)) for each in own]  # type: ignore[misc]
    check(*unseeded)


class Noisy(Dataset[Any]):
    """Samples with noise of a generator of its own, kept as a person would."""

    def __init__(self, generator: Any, draw: Callable[[Any], Any]) -> None:
        self.options = {"noise": generator}
        self.draw = draw

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return self.draw(self.options["noise"])


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (np.random.default_rng, lambda own: own.normal()),
        (np.random.RandomState, lambda own: own.normal()),
        (random.Random, lambda own: own.random()),
        (
            lambda seed: torch.Generator().manual_seed(seed),
            lambda own: torch.rand(2, generator=own),
        ),
    ],
)
def test_augmentation_may_draw_from_a_generator_of_each_rank(
    make: Callable[[int], Any], draw: Callable[[Any], Any]
) -> None:
    unread = make(2)
    data = Noisy(make(2), draw)
    check(Noisy(make(1), draw), data)
    assert np.all(np.asarray(data[0]) == np.asarray(draw(unread)))


def test_the_check_leaves_data_and_random_numbers_as_they_are() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    data = Points(lambda: torch.rand(2))
    check(data, data)
    assert data.reads == [0]
    assert torch.equal(torch.rand(1), expected)


def test_sparse_samples_have_the_content_of_dense_ones() -> None:
    assert content_of([torch.eye(2).to_sparse()]) == content_of([torch.eye(2)]) != b""


def test_objects_whose_content_is_unknown_are_noticed() -> None:
    plain = [torch.eye(2), {"a": (1, None, "x")}, np.array([1.0])]
    assert not has_objects(plain)
    assert has_objects([plain, SimpleNamespace(x=1)])
    assert content_of([plain, SimpleNamespace(x=1)]) == content_of(plain)


def test_data_that_return_whole_batches_are_compared() -> None:
    inputs = torch.arange(12.0).view(6, 2)
    check(TensorData(inputs, inputs[:, 0]), TensorData(inputs, inputs[:, 0]))
    with pytest.raises(TaskError, match="begin with another sample"):
        check(TensorData(inputs.flip(0), inputs[:, 0]), TensorData(inputs, inputs[:, 0]))
