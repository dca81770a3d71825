"""The base class of all strategies, and operations on lists of tensors that they share."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.distributed.timing import Clock

NO_CONTEXT = nullcontext()  # shared, because every step enters it


class Strategy:
    """Training of one process on one device: the strategy `single`.

    Other strategies override what differs. The training loop calls the methods in the order in
    which they stand here. `reduces_unfrozen`: gradients of parameters are reduced that are made
    trainable after `wrap`.
    """

    reduces_unfrozen = True

    def __init__(self, config: RunConfig, world: World) -> None:
        self.config = config
        self.world = world

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        """Return the module to call in training; afterwards all ranks have equal weights."""
        return model

    def optimizer(self, optimizer: Optimizer, model: nn.Module, resumed: bool) -> Optimizer:
        """Return the optimizer to step with.

        `resumed` is True if its state was loaded from a checkpoint.
        """
        return optimizer

    def without_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        """Return a context for the forward and backward of a micro-batch that is not the last."""
        return NO_CONTEXT

    def weight(self, samples: float, total: float) -> float:
        """Return the factor of a micro-batch's mean loss over `samples` (or their weight).

        With it the gradient of the step is that of the mean over the `total` samples of all
        ranks and micro-batches, however unevenly they are shared.
        """
        return samples / total

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        """Make the gradients equal on all ranks, after the backward of the last micro-batch.

        Marks the end of the phases "backward" and, if this communicates, "comm".
        """
        clock.mark("backward")

    def stepping(self) -> AbstractContextManager[Any]:
        """Return a context for gradient clipping and the optimizer's step."""
        return NO_CONTEXT

    def sync_buffers(self, model: nn.Module) -> None:
        """Copy the buffers of rank 0 (running statistics) to all ranks.

        Called before evaluations and checkpoints.
        """
        if self.world.size > 1:
            broadcast_from_leader(self.world, list(model.buffers()))

    def for_evaluation(self, model: nn.Module, wrapped: nn.Module) -> nn.Module:
        """Return the module to call in evaluation; it must not communicate."""
        return model

    def explain(self, error: BaseException) -> Exception | None:
        """Return an error of the config that has caused this one in training; None if unknown."""
        return None

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep for this rank only, as plain data and tensors."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; called only where that was not empty."""

    def rescale(self, factor: float) -> None:
        """Multiply what `load_state` has restored of gradients: the loss scale is another one."""


def broadcast_from_leader(world: World, tensors: list[torch.Tensor]) -> None:
    """Copy the tensors of rank 0 to all ranks, in place, with one broadcast for each dtype."""
    for group in by_dtype(tensors):
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in group])
        world.broadcast_(flat)
        unflatten_into(flat, group)


def by_dtype(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Group the tensors by dtype, in the order of the first of each."""
    groups: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def unflatten_into(flat: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    """Copy consecutive pieces of `flat` into the tensors, whatever their memory format."""
    pieces = flat.split([tensor.numel() for tensor in tensors])
    with torch.no_grad():
        torch._foreach_copy_(
            tensors,
            [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)],
        )
