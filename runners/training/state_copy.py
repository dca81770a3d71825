"""Copies of a user's task or data set that can be used without changing the original.

What is large or cannot be copied is shared: modules, tensors of many elements, files.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from distrain.models.task import Task

MAX_ELEMENTS = 1 << 20  # of a tensor or an array that is copied, such as a confusion matrix

T = TypeVar("T")


def copy_state(item: T) -> T:
    """Return a copy with state of its own, such as lists of predictions, counters and generators.

    An object that cannot be copied is returned itself.
    """
    copied: T = _copy(item, {})
    return copied


def _copy(value: Any, known: dict[int, Any]) -> Any:
    """Copy a value; `known` has the copies of others by id, as they may refer to each other."""
    if id(value) not in known:
        try:
            known[id(value)] = _shallow_copy(value)
        except Exception:  # some objects of users cannot be copied
            known[id(value)] = value
        twin = known[id(value)]
        if twin is not value:
            _copy_parts(twin, known)
    return known[id(value)]


def _shallow_copy(value: Any) -> Any:
    match value:
        case nn.Parameter():
            return value
        case Tensor():
            return value.clone() if value.numel() <= MAX_ELEMENTS else value
        case np.ndarray():
            return value.copy() if value.size <= MAX_ELEMENTS else value
        case torch.Generator():
            return value.clone_state()
        case np.random.Generator() | np.random.RandomState():
            return copy.deepcopy(value)
        case list() | dict() | set() | deque() | random.Random() | Task() | Dataset():
            return copy.copy(value)
    return value


def _copy_parts(twin: Any, known: dict[int, Any]) -> None:
    """Replace what a copy has in common with its original by copies."""
    if isinstance(twin, dict):
        for key, part in twin.items():
            twin[key] = _copy(part, known)
    elif isinstance(twin, list | deque):
        for index, part in enumerate(twin):
            twin[index] = _copy(part, known)
    elif isinstance(twin, Task | Dataset):
        for name, part in vars(twin).items():
            vars(twin)[name] = _copy(part, known)
