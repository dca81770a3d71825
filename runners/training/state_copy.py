"""Copies of a user's task that can evaluate a batch without changing the original.

A copy has one budget, `MAX_ENTRIES` and `MAX_BYTES` in total. What exceeds it or cannot be copied
is shared: modules, files, functions, and the lists or arrays of a large data set. State that is
close to the task is copied first, so that a large data set does not use up what a counter needs.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from distrain.models.task import Task

GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
MAX_ENTRIES = 100_000  # of lists, dicts, sets and attributes
MAX_BYTES = 64 << 20  # of tensors and arrays


def copy_task(task: Task) -> tuple[Task, list[nn.Module]]:
    """Return a copy with state of its own, and the modules that it shares with the original.

    State is a list of predictions, a counter or a generator, also of `finish`. The evaluation data
    are copied too. The training data are those of the original, except for what the evaluation data
    refer to. A task that cannot be copied is returned itself.
    """
    copies = _Copies()
    return copies.make(task), copies.modules


def copy_data(data: Any) -> Any:
    """Return a copy of a data set, which may open files and count samples on its own.

    The generators in it are seeded: augmentation may draw from others on each rank.
    """
    copies = _Copies()
    copied = copies.make(data)
    for generator in copies.generators:
        _seed(generator)
    return copy.copy(data) if copied is data and not hasattr(data, "__del__") else copied


class _Copies:
    """Copies of objects that may refer to each other, each object once."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []
        self.generators: list[Any] = []  # the copies
        self._known: dict[int, Any] = {}  # the copies, by the id of the original
        self._entries = MAX_ENTRIES
        self._bytes = MAX_BYTES

    def make(self, value: Any) -> Any:
        """Return a copy of a value and of what it refers to, level by level."""
        unfinished: deque[Any] = deque()
        copied = self._copy(value, unfinished)
        while unfinished:
            twin = unfinished.popleft()
            for table, key in _places(twin):
                with suppress(Exception):  # a dict of the user may refuse changes
                    table[key] = self._copy(table[key], unfinished)
        return copied

    def _copy(self, value: Any, unfinished: deque[Any]) -> Any:
        if id(value) not in self._known:
            try:
                can_afford = self._can_afford(value)
                twin = self._shallow_copy(value, unfinished) if can_afford else value
            except Exception:  # some objects of users cannot be copied
                twin = value
            self._known[id(value)] = twin
            if isinstance(value, nn.Module):
                self.modules.append(value)
            if twin is not value:
                unfinished.append(twin)
                if isinstance(twin, GENERATORS):
                    self.generators.append(twin)
        return self._known[id(value)]

    def _can_afford(self, value: Any) -> bool:
        """Take the cost of a copy from the budget; return whether enough is left."""
        entries, size = _cost(value)
        if entries > self._entries or size > self._bytes:
            return False
        self._entries -= entries
        self._bytes -= size
        return True

    def _shallow_copy(self, value: Any, unfinished: deque[Any]) -> Any:
        match value:
            case nn.Parameter():
                return value
            case Tensor():
                return value.clone()
            case np.ndarray():
                return value.copy()
            case torch.Generator():
                return value.clone_state()
            case np.random.Generator() | np.random.RandomState():
                return copy.deepcopy(value)
            case list() | dict() | set() | deque() | random.Random():
                return copy.copy(value)
            case MethodType():  # such as `finish`, of a task or of an object with a generator
                return MethodType(value.__func__, self._copy(value.__self__, unfinished))
            case partial():
                arguments = [self._copy(each, unfinished) for each in value.args]
                options = {
                    key: self._copy(each, unfinished) for key, each in value.keywords.items()
                }
                return partial(self._copy(value.func, unfinished), *arguments, **options)
        return copy.copy(value) if _has_state(value) else value


def _seed(generator: Any) -> None:
    match generator:
        case torch.Generator():
            generator.manual_seed(0)
        case np.random.Generator():
            bits = generator.bit_generator
            bits.state = type(bits)(0).state
        case _:
            generator.seed(0)


def _has_state(value: Any) -> bool:
    """Return whether the attributes of a value are copied: a task, a data set, or a `finish`.

    The end of a copy must not close a file of the original.
    """
    is_stateful = isinstance(value, Task | Dataset) or (
        callable(value)
        and hasattr(value, "__dict__")
        and not isinstance(value, nn.Module | FunctionType | MethodType | partial | type)
    )
    return is_stateful and not hasattr(value, "__del__")


def _cost(value: Any) -> tuple[int, int]:
    """Return the entries and bytes of a shallow copy."""
    match value:
        case nn.Parameter():
            return 0, 0
        case Tensor() | np.ndarray():
            return 0, int(value.nbytes)
        case list() | dict() | set() | deque():
            return len(value), 0
    return len(vars(value)) if _has_state(value) else 0, 0


def _places(twin: Any) -> Iterator[tuple[Any, Any]]:
    """Yield where a copy has something in common with its original, as (table, key)."""
    if isinstance(twin, dict):
        yield from ((twin, key) for key in list(twin))
    elif isinstance(twin, list | deque):
        yield from ((twin, index) for index in range(len(twin)))
    elif _has_state(twin):
        names = [name for name in vars(twin) if not (isinstance(twin, Task) and name == "train")]
        yield from ((vars(twin), name) for name in names)
