"""Restores modules after a use that must not change them, such as an evaluation before training."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_INTERNAL = vars(nn.Module()).keys() - {"_buffers"}  # what every module has, such as its hooks
_CONTAINERS = {dict, OrderedDict, defaultdict, list, set, deque}


@contextmanager
def unchanged_modules(roots: Iterable[nn.Module]) -> Iterator[None]:
    """Leave attributes and buffers of all modules behind the block as they were before it.

    Parameters and the modules themselves are not restored: an evaluation does not train. Nor are
    the numbers of sparse tensors, which nothing changes in place.
    """
    modules = dict.fromkeys(module for root in roots for module in root.modules())
    tables = [vars(module) for module in modules]
    state = [part for table in tables for name, part in table.items() if name not in _INTERNAL]
    containers = [
        (part, copy.copy(part)) for part in [*tables, *state] if type(part) in _CONTAINERS
    ]
    generators = [(part, part.get_state()) for part in state if isinstance(part, torch.Generator)]
    buffers = [buffer for module in modules for buffer in module.buffers(recurse=False)]
    tensors = [(tensor, tensor.clone()) for tensor in filter(_is_plain, [*buffers, *state])]
    yield
    for container, content in containers:  # forward may have set or added others
        container.clear()
        if isinstance(container, list | deque):
            container.extend(content)
        else:
            container.update(content)
    for generator, position in generators:
        generator.set_state(position)
    with torch.no_grad():
        for tensor, value in tensors:
            if not torch.equal(tensor, value):  # others may be expanded, and cannot be written to
                tensor.copy_(value)


def _is_plain(part: Any) -> bool:
    is_state = isinstance(part, Tensor) and not isinstance(part, nn.Parameter)
    return is_state and part.layout == torch.strided and not part.is_meta
