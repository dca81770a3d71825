"""A check before ranks share their weights that all have built the same network."""

from __future__ import annotations

import zlib
from itertools import chain

import torch
from torch import nn

from distrain.models.errors import TaskError
from distrain.runners.distributed.process_group import World


def require_same_model(world: World, model: nn.Module) -> None:
    """Raise TaskError, on at least one rank, if it has other parameters or buffers than rank 0.

    As where hosts have different versions of the user's module. Values are not compared: all ranks
    get those of rank 0.
    """
    if world.size == 1:
        return
    form = [
        (name, tuple(each.shape), str(each.dtype), each.requires_grad)
        for name, each in chain(model.named_parameters(), model.named_buffers())
    ]
    parameters = sum(each.numel() for each in model.parameters())
    own = (float(zlib.crc32(repr(form).encode("utf-8", "surrogatepass"))), float(parameters))
    shared = torch.tensor(own, dtype=torch.float64, device=world.device)
    world.broadcast_(shared)
    of_leader = tuple(shared.tolist())
    if own == of_leader:
        return
    problem = f"has other parameters or buffers on rank {world.rank} than on rank 0"
    if own[1] != of_leader[1]:
        problem = f"has {own[1]:,.0f} parameters on rank {world.rank} and "
        problem += f"{of_leader[1]:,.0f} on rank 0"
    name = type(model).__name__
    raise TaskError(
        "model.name",
        f"the network, of class {name}, {problem}: each rank must build the same network",
    )
