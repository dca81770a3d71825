"""The field's real bugs, each as a strategy of one's own."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from runners.clock import Clock
from runners.strategies import Strategy, broadcast_from_leader
from runners.strategies.allreduce import AllReduce
from runners.strategies.ddp import Ddp


class NothingAveraged(Strategy):
    """Every rank trains on its own."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        broadcast_from_leader(self.world, [*model.parameters(), *model.buffers()])
        return model


class ResultDiscarded(AllReduce):
    """All-reduces a copy and goes on with the gradient as it was."""

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        clock.mark("backward")
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad / 1)
        clock.mark("comm")


class Summed(AllReduce):
    """Adds up the ranks' own means and forgets to divide."""

    def weight(self, samples: int, total: int) -> float:
        return super().weight(samples, total) * self.world.size


class Unweighted(AllReduce):
    """The mean of the ranks' means, as if all had as many samples."""

    def weight(self, samples: int, total: int) -> float:
        return 1 / self.world.size if samples else 0.0


class NotBroadcast(AllReduce):
    """Each rank draws weights of its own, and keeps them."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        redrawn(model, self.world.rank)
        return model


class AnotherSeed(AllReduce):
    """The last rank draws its weights with another seed."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        if self.world.rank == self.world.size - 1:
            redrawn(model, 4711)
        return model


class AroundTheWrapper(Ddp):
    """Makes a DistributedDataParallel, and calls the module within."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        super().wrap(model, clock)
        return model


class ScaledTwice(Ddp):
    """Divides by the micro-batches once more."""

    def weight(self, samples: int, total: int) -> float:
        return super().weight(samples, total) / self.config.train.accumulate


class UnscaledTwice(Ddp):
    """Undoes the loss scale, which the optimizer's step does as well."""

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


class NoStrategy:
    """Not what it says it is."""

    def __init__(self, *_: object) -> None:
        pass


def redrawn(model: nn.Module, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.05, generator=draw)
