"""The task: all that the training loop knows of what is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from models.data import collate
from models.errors import TaskError

__all__ = ["Sums", "Task", "TaskError", "moved"]

Sums = dict[str, tuple[Tensor, int]]
"""Metric → (sum over the batch, number of things summed)."""


class Task(ABC):
    """A model, two map-style data sets, a loss and metrics.

    Subclasses set `model`, `train` and `eval`. `best` names the metric that decides which
    checkpoint is the best one, `best_is` says in which direction. `collate` joins samples into
    a batch (None: torch's default); it must be picklable for loader processes. `finish`
    completes a batch once it is on its device (None: it is complete).
    """

    model: nn.Module
    train: Dataset[Any]
    eval: Dataset[Any]
    best: str = "loss"
    best_is: Literal["max", "min"] = "min"
    collate: ClassVar[Callable[[Any], Any] | None] = staticmethod(collate)
    finish: Callable[[Any], Any] | None = None

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean over the batch's samples, a scalar with a gradient.

        Must call `model`, which is `self.model` as the strategy has wrapped it.
        """

    @abstractmethod
    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        """Sums over the batch and their counts; called in eval mode, without gradients.

        Each sum is a tensor without dimensions: int64 for what is counted (exact for any
        number of ranks), float64 for what is measured.
        """

    def to(
        self,
        batch: Any,
        device: torch.device,
        *,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> Any:
        """The batch on `device`, finished.

        `memory_format` is for tensors with 4 dimensions (images).
        """
        batch = moved(batch, device, non_blocking, memory_format)
        if self.finish is None:
            return batch
        return moved(self.finish(batch), device, memory_format=memory_format)


def moved(
    batch: Any,
    device: torch.device,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Any:
    """`batch` with each tensor in its tuples, lists and dicts moved to `device`."""
    if isinstance(batch, Tensor):
        layout = memory_format if batch.ndim == 4 else torch.preserve_format
        return batch.to(device, non_blocking=non_blocking, memory_format=layout)
    if isinstance(batch, dict):
        return {
            key: moved(value, device, non_blocking, memory_format) for key, value in batch.items()
        }
    if isinstance(batch, list | tuple):
        parts = [moved(value, device, non_blocking, memory_format) for value in batch]
        # A named tuple wants its fields one by one.
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
