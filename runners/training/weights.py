"""The weights of batches, of a task whose loss is a mean with weights of its own."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from distrain.models.errors import TaskError
from distrain.models.places import place_of
from distrain.models.task import Task


def has_weights(task: Task) -> bool:
    """Return whether the task weighs its batches by more than the number of their samples."""
    return type(task).weight is not Task.weight


def weight_of(task: Task, batch: Any) -> float:
    """Return the weight of a batch. Raises TaskError."""
    returned = task.weight(batch)
    place = place_of(task.weight)
    if isinstance(returned, Tensor) and returned.numel() == 1:
        returned = returned.item()
    if not isinstance(returned, int | float) or not math.isfinite(returned) or returned < 0:
        problem = "must return the weight of the batch, a number of at least 0"
        raise TaskError("task.name", f"{place} {problem}, but it returned {returned!r:.80}")
    return float(returned)
