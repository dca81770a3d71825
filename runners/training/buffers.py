"""Buffers that a model makes or resizes in `forward`, so that a new model does not have them.

A checkpoint names them, and a resumed run makes them before it loads their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

Shapes = Mapping[str, "torch.Size | None"]
"""The shapes of buffers by name; None where torch itself makes them in the first `forward`."""


def shapes_of(model: nn.Module) -> Shapes:
    buffers = model.named_buffers(remove_duplicate=False)
    return {name: None if is_lazy(each) else each.shape for name, each in buffers}


def changed_buffers(model: nn.Module, at_start: Shapes) -> list[str]:
    """Return the names of buffers in the state of a model that are new or have another shape."""
    state = model.state_dict()
    return [
        name
        for name, shape in shapes_of(model).items()
        if name in state and at_start.get(name, ()) is not None and at_start.get(name) != shape
    ]


def make_buffers(model: nn.Module, names: Iterable[str], state: Mapping[str, Any]) -> None:
    """Give a model the buffers with these names of a saved state. Raises one of checkpoint.DAMAGE.

    They are on the device of its parameters.
    """
    device = next(model.parameters()).device
    for name in names:
        path, _, own = name.rpartition(".")
        set_buffer(model.get_submodule(path), own, state[name].to(device))


def set_buffer(module: nn.Module, name: str, value: Tensor) -> None:
    if name in dict(module.named_buffers(recurse=False)):
        setattr(module, name, value)  # which a scripted module allows, too
    else:
        module.register_buffer(name, value)
