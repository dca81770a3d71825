"""Keeps an optimizer as it is where a library makes another one of its class."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer


def kept_when_rebuilt(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer, with a class whose constructor takes over its attributes.

    Horovod derives from an optimizer's class and calls the constructor with the groups alone. So
    options that are not part of a group, hooks and state would be lost, and a constructor with
    other arguments would fail.
    """
    kind = type(optimizer)

    def take_over(self: Any, groups: object = None) -> None:
        vars(self).update(vars(optimizer))

    kept: Optimizer = object.__new__(type(kind.__name__, (kind,), {"__init__": take_over}))
    take_over(kept)
    return kept
