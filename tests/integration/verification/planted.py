"""Bugs in how replicas are kept equal and gradients reduced, each as a strategy of the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

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

    def weight(self, samples: float, total: float) -> float:
        return super().weight(samples, total) * self.world.size


class Unweighted(AllReduce):
    """Averages the means of the ranks as if each had the same number of samples."""

    def weight(self, samples: float, total: float) -> float:
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

    def weight(self, samples: float, total: float) -> float:
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


class NoStrategy:
    """Is not a Strategy."""

    def __init__(self, *_: object) -> None:
        pass


class Changed(AllReduce):
    """Reduces as it should, and then changes the gradients."""

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        local = [_gradient_of(parameter).clone() for parameter in model.parameters()]
        super().reduce(model, clock)
        self.change([_gradient_of(parameter) for parameter in model.parameters()], local)

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        raise NotImplementedError


class LastForgotten(Changed):
    """Leaves the gradient of the last parameter as it is on each rank."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        reduced[-1].copy_(local[-1])


class BiasesForgotten(Changed):
    """Reduces matrices only."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for after, before in zip(reduced, local, strict=True):
            if after.ndim == 1:
                after.copy_(before)


class OneElement(Changed):
    """Loses one element of one gradient."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        flat = reduced[2].view(-1)
        flat[flat.abs().median(dim=0).indices] = 0.0


class Noise(Changed):
    """Adds noise of 3e-6 of each element, the same on all ranks."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        draw = torch.Generator().manual_seed(0)
        for gradient in reduced:
            gradient *= 1 + 3e-6 * torch.randn(gradient.shape, generator=draw)


class LastBucketLost(Changed):
    """Loses the last hundredth of each gradient."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient in reduced:
            gradient.view(-1)[-max(1, gradient.numel() // 100) :] = 0.0


class Negated(Changed):
    """Changes the sign of one bias."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        reduced[1].neg_()


class Swapped(Changed):
    """Writes the results of two parameters of the same shape into each other."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        kept = reduced[1].clone()
        reduced[1].copy_(reduced[3])
        reduced[3].copy_(kept)


class Delayed(Changed):
    """Uses the gradients of the step before."""

    earlier: list[torch.Tensor] | None = None

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        now = [gradient.clone() for gradient in reduced]
        for gradient, before in zip(reduced, self.earlier or now, strict=True):
            gradient.copy_(before)
        self.earlier = now


class NotZeroed(Changed):
    """Adds each gradient to those of the steps before."""

    total: list[torch.Tensor] | None = None

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient, before in zip(reduced, self.total or [], strict=False):
            gradient += before
        self.total = [gradient.clone() for gradient in reduced]


class InBfloat16(Changed):
    """Sends the gradients as bfloat16."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient in reduced:
            gradient.copy_(gradient.bfloat16().float())


class ReducedTwice(Changed):
    """Adds up the ranks' gradients, and then the sums once more."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient in reduced:
            dist.all_reduce(gradient)


class FirstRankOnly(Changed):
    """Sends the gradients of rank 0 to all."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient, before in zip(reduced, local, strict=True):
            gradient.copy_(before * self.world.size)
            dist.broadcast(gradient, 0)


class LastRankLost(Changed):
    """Leaves out the last rank."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient, before in zip(reduced, local, strict=True):
            last = before.clone()
            dist.broadcast(last, self.world.size - 1)
            gradient -= last


class Maximum(Changed):
    """Takes the largest gradient of all ranks in place of the sum."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient, before in zip(reduced, local, strict=True):
            gradient.copy_(before)
            dist.all_reduce(gradient, dist.ReduceOp.MAX)


class DividedTwice(Changed):
    """Divides by the number of ranks what is a mean already."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient in reduced:
            gradient /= self.world.size


class OneTooMany(Changed):
    """Divides the sum of the ranks' means by one more than there are."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        for gradient in reduced:
            gradient *= self.world.size / (self.world.size + 1)


class ClippedApart(Changed):
    """Clips the gradients of each rank before it adds them up."""

    def change(self, reduced: list[torch.Tensor], local: list[torch.Tensor]) -> None:
        norm = torch.stack([gradient.norm() for gradient in local]).norm()
        for gradient, before in zip(reduced, local, strict=True):
            gradient.copy_(before * (0.05 / norm).clamp(max=1.0))
            dist.all_reduce(gradient)


class EqualMicroBatches(AllReduce):
    """Weighs all micro-batches alike."""

    def weight(self, samples: float, total: float) -> float:
        return 1 / (self.world.size * self.config.train.accumulate)


class LastMicroBatchOnly(AllReduce):
    """Trains on the last of several micro-batches."""

    calls = 0

    def weight(self, samples: float, total: float) -> float:
        self.calls += 1
        is_last = self.calls % self.config.train.accumulate == 0
        return super().weight(samples, total) * self.config.train.accumulate * is_last


class SyncedEachTime(Ddp):
    """Reduces after each micro-batch what has been reduced before."""

    @contextmanager
    def without_sync(self, wrapped: nn.Module) -> Iterator[None]:
        yield


class OneRankTwice(AllReduce):
    """Counts the samples of the last rank twice."""

    def weight(self, samples: float, total: float) -> float:
        is_last = self.world.rank == self.world.size - 1
        return super().weight(samples, total) * (2 if is_last else 1)


class WeightsAveraged(NothingAveraged):
    """Averages the weights after each step in place of the gradients before it."""

    def optimizer(self, optimizer: Optimizer, model: nn.Module, resumed: bool) -> Optimizer:
        @torch.no_grad()
        def average(*_: object) -> None:
            for parameter in model.parameters():
                dist.all_reduce(parameter)
                parameter /= self.world.size

        optimizer.register_step_post_hook(average)
        return optimizer


def _gradient_of(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def redraw_weights(model: nn.Module, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.05, generator=draw)
