"""The weights of batches, of a task whose loss is a mean with weights of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distrain.models.errors import TaskError
from distrain.models.places import place_of
from distrain.models.task import Task, overrides


def has_weights(task: Task) -> bool:
    """Return whether the task weighs its batches by more than the number of their samples."""
    return overrides(task, "weight")


def weight_of(task: Task, batch: Any) -> float:
    """Return the weight of a batch. Raises TaskError."""
    return weights_of(task, [batch])[0]


def weights_of(task: Task, batches: Sequence[Any]) -> list[float]:
    """Return the weights of several batches, and wait for their device once. Raises TaskError."""
    return [_checked(task, value) for value in _read([task.weight(batch) for batch in batches])]


def _read(values: list[Any]) -> list[Any]:
    """Return tensors of one element as numbers."""
    kinds = {(each.dtype, each.device) if _is_single(each) else None for each in values}
    if len(kinds) == 1 and None not in kinds:
        numbers: list[Any] = torch.stack([each.reshape(()) for each in values]).tolist()
        return numbers
    return [each.item() if _is_single(each) else each for each in values]


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _checked(task: Task, value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        problem = "must return the weight of the batch, a number of at least 0"
        raise TaskError(
            "task.name", f"{place_of(task.weight)} {problem}, but it returned {value!r:.80}"
        )
    return float(value)
