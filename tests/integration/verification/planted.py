"""Known bugs of distributed training, each as a strategy of the user."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from distrain.runners.distributed.timing import Clock
from distrain.runners.strategies import Strategy, broadcast_from_leader
from distrain.runners.strategies.allreduce import AllReduce
from distrain.runners.strategies.ddp import Ddp


class NothingAveraged(Strategy):
    """Every rank trains without exchanging gradients."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        broadcast_from_leader(self.world, [*model.parameters(), *model.buffers()])
        return model


class ResultDiscarded(AllReduce):
    """All-reduces a copy and keeps the local gradient."""

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        clock.mark("backward")
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad / 1)
        clock.mark("comm")


class Summed(AllReduce):
    """Sums the means of the ranks without dividing."""

    def weight(self, samples: int, total: int) -> float:
        return super().weight(samples, total) * self.world.size


class Unweighted(AllReduce):
    """Averages the means of the ranks as if each had the same number of samples."""

    def weight(self, samples: int, total: int) -> float:
        return 1 / self.world.size if samples else 0.0


class NotBroadcast(AllReduce):
    """Each rank initializes the weights with its own seed; nothing is broadcast."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        redraw_weights(model, self.world.rank)
        return model


class AnotherSeed(AllReduce):
    """The last rank initializes its weights with a different seed."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        if self.world.rank == self.world.size - 1:
            redraw_weights(model, 4711)
        return model


class AroundTheWrapper(Ddp):
    """Creates a DistributedDataParallel, but calls the wrapped module."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        super().wrap(model, clock)
        return model


class ScaledTwice(Ddp):
    """Divides by the number of micro-batches a second time."""

    def weight(self, samples: int, total: int) -> float:
        return super().weight(samples, total) / self.config.train.accumulate


class UnscaledTwice(Ddp):
    """Removes the loss scale, which the optimizer's step does as well."""

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        super().reduce(model, clock)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= 65_536.0


class OneBucketInHalf(AllReduce):
    """Sends the first parameter's gradient as fp16."""

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        super().reduce(model, clock)
        first = next(model.parameters())
        assert first.grad is not None
        first.grad.copy_(first.grad.half().float())


def normed(shape: Sequence[int], classes: int) -> nn.Module:
    """A small network with BatchNorm, whose first bias has a gradient of zero."""
    inputs = math.prod(shape)
    layers = [nn.Linear(inputs, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes)]
    return nn.Sequential(nn.Flatten(), *layers)


class NoStrategy:
    """Is not a Strategy."""

    def __init__(self, *_: object) -> None:
        pass


def redraw_weights(model: nn.Module, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.05, generator=draw)
