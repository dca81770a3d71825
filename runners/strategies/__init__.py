"""How replicas are kept equal. `Strategy` is one process on one device; the others override
what they must. A strategy knows nothing of launchers, precision or data.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from models.errors import TaskError
from models.importing import load
from runners.clock import Clock
from runners.config import RunConfig
from runners.precision import NOTHING
from runners.world import World


class Strategy:
    """`single`, and the identity defaults of all others."""

    def __init__(self, config: RunConfig, world: World) -> None:
        self.config = config
        self.world = world

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        """The module to call in training; equal weights on every rank from here on."""
        return model

    def optimizer(self, optimizer: Optimizer, model: nn.Module, resumed: bool) -> Optimizer:
        """The optimizer to step with; `resumed` says that its state is that of a checkpoint."""
        return optimizer

    def for_evaluation(self, model: nn.Module, wrapped: nn.Module) -> nn.Module:
        """The module to call in evaluation: it must not communicate."""
        return model

    def without_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        """Around forward and backward of all micro-batches of a step but the last."""
        return NOTHING

    def weight(self, samples: int, total: int) -> float:
        """Factor of a mean loss over `samples`, so that the step's gradient is that of the
        mean over the `total` samples of all ranks and micro-batches, however uneven.
        """
        return samples / total

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        """After the backward of the last micro-batch: make gradients equal on all ranks."""
        clock.mark("backward")

    def stepping(self) -> AbstractContextManager[Any]:
        """Around clipping and the optimizer's step."""
        return NOTHING

    def sync_buffers(self, model: nn.Module) -> None:
        """Before evaluation and checkpoints: rank 0's buffers (running statistics) for all."""
        if self.world.size > 1:
            broadcast_from_leader(self.world, list(model.buffers()))

    def state(self) -> dict[str, Any]:
        """What this rank alone must remember to go on, as plain data and tensors."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None: ...


def broadcast_from_leader(world: World, tensors: list[torch.Tensor]) -> None:
    """One broadcast per dtype of all tensors, from rank 0, in place."""
    for group in by_dtype(tensors):
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in group])
        world.broadcast_(flat)
        unflatten_into(flat, group)


def by_dtype(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
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


def build(config: RunConfig, world: World) -> Strategy:
    """The strategy that the config names; raises TaskError where a user's own is none."""
    if config.strategy == "single":
        return Strategy(config, world)
    if ":" not in config.strategy:
        module = import_module(f"runners.strategies.{config.strategy}")
        built: Strategy = module.STRATEGY(config, world)
        return built
    made = load("strategy", config.strategy)(config, world)
    if not isinstance(made, Strategy):
        text = f"{config.strategy} gave a {type(made).__name__}, not a runners.strategies.Strategy"
        raise TaskError("strategy", text)
    return made
