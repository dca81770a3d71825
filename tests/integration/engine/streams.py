"""Tasks that train with a stream, right and wrong ones, as factories for a config."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from distrain.models.data import TensorData
from distrain.models.task import Sums, Task

SAMPLES = 50
Sample = tuple[Tensor, Tensor]


def point(index: int) -> Sample:
    place = torch.tensor([index / SAMPLES, (index % 7) / 7])
    return place, 2 * place[:1] - place[1:]


class Points(IterableDataset[Any]):
    """Points in an order, and with noise, of the global generators."""

    def __iter__(self) -> Iterator[Any]:
        order = list(range(SAMPLES))
        random.shuffle(order)
        yield from map(point, order)

    def decode(self, sample: Sample) -> Sample:
        place, value = sample
        return place + 0.01 * torch.randn(2), value


class Regression(Task):
    def __init__(self, train: Any) -> None:
        self.model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.train = train
        places, values = zip(*map(point, range(SAMPLES)), strict=True)
        self.eval = TensorData(torch.stack(places), torch.stack(values))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        places, values = batch
        return F.mse_loss(model(places), values)

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        places, values = batch
        errors = (model(places) - values).square().double()
        return {"loss": (errors.sum(), len(values))}


def regression() -> Regression:
    return Regression(Points())


class Empty(Points):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


class ByRank(Points):
    """Each rank gets a part, which the run would divide again."""

    def __iter__(self) -> Iterator[Any]:
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        rank = dist.get_rank() if dist.is_initialized() else 0
        return map(point, range(rank, SAMPLES, ranks))


class Unseeded(Points):
    def __iter__(self) -> Iterator[Any]:
        draw = random.Random(os.urandom(8))
        return map(point, draw.sample(range(SAMPLES), SAMPLES))


class Falling(Points):
    """A stream whose second pass is empty."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return map(point, range(SAMPLES if self.passes == 1 else 0))


def wrong(kind: str) -> Regression:
    kinds = {"empty": Empty, "by rank": ByRank, "unseeded": Unseeded, "falling": Falling}
    return Regression(kinds[kind]())
