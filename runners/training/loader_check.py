"""Checks that loader processes which are not forked can receive the data sets of a task."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from types import MethodType
from typing import Any

import numpy as np
from torch import Tensor

from distrain.models.errors import TaskError
from distrain.models.places import place_of
from distrain.models.task import Task, collate_of

# What pickle raises for a lambda, a local class, an open file and the like. Objects of
# multiprocessing raise RuntimeError, because they can be sent while a process starts only.
REFUSALS = (PicklingError, AttributeError, TypeError)


def require_picklable(task: Task, context: str) -> None:
    """Raise TaskError with the part of the data sets that cannot be sent to a process."""
    parts = {"train": task.train, "eval": task.eval, "collate": collate_of(task)}
    for name, part in parts.items():
        if found := _find_unpicklable(name, part, set()):
            where, value, reason = found
            described = place_of(value) if callable(value) else f"a {type(value).__name__}"
            raise TaskError(
                "data.worker_context",
                f"{where} of the task is {described}, which a loader process that is started by "
                f"{context} cannot receive ({reason}): define it at the top of a module, or set "
                '"fork"',
            )


def _find_unpicklable(name: str, value: Any, seen: set[int]) -> tuple[str, Any, str] | None:
    """Return the innermost part that cannot be sent: its name, itself, and the reason."""
    if id(value) in seen:
        return None
    seen.add(id(value))
    try:
        _Probe(_Nowhere()).dump(value)
    except REFUSALS as error:
        parts = _parts(name, value)
        inner = (found for each in parts if (found := _find_unpicklable(*each, seen)))
        return next(inner, (name, value, str(error)))
    except Exception:  # torch itself reports what is wrong once the processes start
        return None
    return None


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{name}[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, MethodType):  # `collate`, whose attributes are those of the task
        yield from vars(value.__self__).items()
    else:
        attributes = getattr(value, "__dict__", {})
        yield from ((f"{name}.{key}", part) for key, part in attributes.items())


class _Probe(ForkingPickler):
    """Pickles everything but the content of arrays, which may be large and never fails."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor | np.ndarray):
            return int, ()
        return NotImplemented


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)
