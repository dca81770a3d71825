"""The strategy `allreduce`: sum the gradients after backward, with one all-reduce per dtype."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from distrain.models.errors import TaskError
from distrain.runners.distributed.timing import Clock
from distrain.runners.strategies.base import (
    Strategy,
    broadcast_from_leader,
    by_dtype,
    unflatten_into,
)
from distrain.runners.strategies.use_marks import UseMarks


class AllReduce(Strategy):
    """Weights the loss of each rank by its share of the global batch, so the sum is the mean."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        broadcast_from_leader(self.world, [*model.parameters(), *model.buffers()])
        return model

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        clock.mark("backward")
        spans = []
        for parameters in by_dtype([each for each in model.parameters() if each.requires_grad]):
            marks = UseMarks(parameters)
            gradients = [_gradient_of(parameter) for parameter in parameters]
            flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), marks.tensor()])
            arrival = clock.stamp()
            dist.all_reduce(flat)
            spans.append((arrival, clock.stamp()))
            unflatten_into(flat[: -len(parameters)], gradients)
            marks.remove_unused(flat[-len(parameters) :])
        clock.add_all_reduces(spans)
        clock.mark("comm")


def _gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    """Return the gradient; zeros where only other ranks may have used the parameter."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    if parameter.grad.is_sparse:
        problem = "allreduce does not reduce sparse gradients, such as those of an embedding with "
        raise TaskError("strategy", f"{problem}sparse=True: use ddp")
    return parameter.grad


STRATEGY = AllReduce
