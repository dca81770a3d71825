"""`allreduce`: gradients summed by hand after backward, all of one dtype in one all-reduce."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from runners.clock import Clock
from runners.strategies import Strategy, broadcast_from_leader, by_dtype, unflatten_into


class AllReduce(Strategy):
    """Each rank's loss is weighted by its share of the global batch, so the sum is the mean."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        broadcast_from_leader(self.world, [*model.parameters(), *model.buffers()])
        return model

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        clock.mark("backward")
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in parameters:
            # A parameter unused here may be used elsewhere, and all must send the same layout.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        spans = []
        for gradients in by_dtype([p.grad for p in parameters if p.grad is not None]):
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            arrived = clock.stamp()
            dist.all_reduce(flat)
            spans.append((arrived, clock.stamp()))
            unflatten_into(flat, gradients)
        clock.communicated(spans)
        clock.mark("comm")


STRATEGY = AllReduce
