"""The strategy `allreduce`: sum the gradients after backward, with one all-reduce per dtype."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from distrain.runners.distributed.timing import Clock
from distrain.runners.strategies.base import (
    Strategy,
    broadcast_from_leader,
    by_dtype,
    unflatten_into,
)


class AllReduce(Strategy):
    """Weights the loss of each rank by its share of the global batch, so the sum is the mean."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        broadcast_from_leader(self.world, [*model.parameters(), *model.buffers()])
        return model

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        clock.mark("backward")
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in parameters:
            # Another rank may have used this parameter, and all must send the same layout.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        spans = []
        for gradients in by_dtype([p.grad for p in parameters if p.grad is not None]):
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            arrival = clock.stamp()
            dist.all_reduce(flat)
            spans.append((arrival, clock.stamp()))
            unflatten_into(flat, gradients)
        clock.add_all_reduces(spans)
        clock.mark("comm")


STRATEGY = AllReduce
