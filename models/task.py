"""The task: everything that the training loop knows about what is trained."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.optim import Optimizer
from torch.utils.data import Dataset

from distrain.models.data import collate
from distrain.models.errors import TaskError
from distrain.models.metric_state import MetricState

__all__ = ["Sums", "Task", "TaskError", "collate_of", "give_turn", "move_tensors", "overrides"]

Sums = Mapping[str, tuple[Tensor | float, Tensor | int] | MetricState]
"""By metric: (sum over the batch, number of values summed), or an object that was updated."""


class Task(ABC):
    """A model, training and evaluation data, a loss and metrics.

    Subclasses set `model`, `train` (a map-style data set or a stream) and `eval` (a map-style data
    set), which is None to train without evaluation. `best`
    is the metric that decides which checkpoint is the best one, and `best_is` whether its maximum
    or its minimum is best.
    `on_log` is set by the run, for `log`.
    `turn` is the name of the optimizer whose turn it is, where `optimizer` returns several.
    `collate` joins samples into a batch (None: torch's default); it must be picklable for loader
    processes. Where a sample consists of items that matter more, such as the tokens of a text,
    `item` is their name and `items_per_sample` their number; rates are then shown in tokens/s.
    `flops_per_sample` are the floating-point operations that the model needs for a sample, forward
    and backward, and give the MFU on GPUs whose peak is known (0: unknown).
    `finish` completes a batch after it was moved to the device (None: nothing to do).
    """

    model: nn.Module
    train: Dataset[Any]
    eval: Dataset[Any] | None
    best: str = "loss"
    best_is: Literal["max", "min"] = "min"
    item: str = "sample"
    items_per_sample: float = 1
    flops_per_sample: float = 0
    turn: str = ""
    on_log: Callable[[str, Any], None] | None = None
    collate: ClassVar[Callable[[Any], Any] | None] = staticmethod(collate)
    finish: Callable[[Any], Any] | None = None

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss over the batch's samples, a scalar with a gradient.

        Must call `model`: it is `self.model`, wrapped by the strategy.
        """

    def weight(self, batch: Any) -> float | Tensor | None:
        """Return the sum of the weights of a batch's samples; None: their number.

        A task defines this if `loss` is a mean in which samples have different weights, such as a
        mean over tokens without padding. The gradient of a step is then that of the weighted mean
        over all its samples, for any number of ranks and micro-batches. The loss of a batch
        without weight must be finite.
        """
        return None

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        """Return sums over the batch and their counts; called in eval mode, without gradients.

        Each sum is a number or a 0-dim tensor: int64 for what is counted (exact for any number of
        ranks), float64 for what is measured. A count is a whole number. What is no mean, such as
        AUC, is an object with a state (`models.metric_state`) that was updated with the batch: the
        same for each batch, which is reset after the evaluation, or a new one for each.
        """
        problem = f"{type(self).__name__} has evaluation data, and no metrics(model, batch)"
        raise TaskError("task.name", problem)

    def log(self, name: str, value: Tensor | float) -> None:
        """Record a number of the current step, such as a part of the loss, as a curve of this rank.

        Called in `loss`. A tensor of one element may stay on its device: nothing waits for it.
        """
        if self.on_log is not None:
            self.on_log(name, value)

    def derived(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Return what follows from the means of all metrics, such as a perplexity.

        It is computed once, after the sums of all batches and ranks were added: the exponential
        of a mean is not the mean of exponentials. `means` has no metric that is not finite.
        """
        return {}

    def parameter_groups(self, model: nn.Module) -> Iterable[dict[str, Any]] | None:
        """Return groups for the optimizer of the config; None: one group of all parameters.

        A group is a dict of "params" and options of the optimizer, such as "weight_decay".
        "lr_scale" multiplies the learning rate of the group, "lr" replaces it; the schedule applies
        to both. `model` is on its device, and not wrapped.
        """
        return None

    def optimizer(self, model: nn.Module) -> Optimizer | Mapping[str, Optimizer] | None:
        """Return the optimizer to train with; None: that of the config.

        Its learning rate replaces `train.lr`; the schedule applies to it. Several optimizers, by
        name, take turns: each step is one of the next. `loss` finds the name in `self.turn`.
        """
        return None

    def schedule(self, step: int, total_steps: int) -> float:
        """Return the factor of the learning rates in a step, counted from 0.

        A task that defines this replaces the schedule and the warm-up of the config.
        """
        return 1.0

    def to(
        self,
        batch: Any,
        device: torch.device,
        *,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> Any:
        """Move the batch to the device and finish it.

        `memory_format` applies to tensors with 4 dimensions (images).
        """
        batch = move_tensors(batch, device, non_blocking, memory_format)
        if self.finish is None:
            return batch
        return move_tensors(self.finish(batch), device, memory_format=memory_format)


def give_turn(task: Task, turn: str) -> None:
    """Tell a task whose optimizer has its turn; it may be a frozen dataclass."""
    object.__setattr__(task, "turn", turn)


def overrides(task: Task, name: str) -> bool:
    """Return whether the class of a task defines this method, or the task has such an attribute."""
    method = getattr(task, name)
    return getattr(method, "__func__", method) is not getattr(Task, name)


def collate_of(task: Task) -> Callable[[Any], Any] | None:
    """Return what joins samples into a batch; a function of the class need not take the task.

    A method gets the task without its model and its other methods, which loader processes of any
    kind can receive.
    """
    own: Any = vars(task).get("collate", type(task).collate)
    if getattr(own, "__self__", None) is task:
        own = own.__func__
    elif "collate" in vars(task) or not _takes_task(type(task)):
        return own  # type: ignore[no-any-return]
    without_model = object.__new__(type(task))
    others = {
        "model",
        "on_log",
        "finish",
        *(name for name in vars(Task) if callable(vars(Task)[name])),
    }
    for name, value in _attributes(task).items():
        if not (name in others or getattr(value, "__self__", None) is task):
            object.__setattr__(without_model, name, value)  # also of a frozen dataclass
    return MethodType(own, without_model)


def _attributes(task: Task) -> dict[str, Any]:
    """Return the attributes of a task, also those in `__slots__`."""
    state: Any = object.__getstate__(task)
    in_dict, in_slots = state if isinstance(state, tuple) else (state, None)
    return {**(in_dict or {}), **(in_slots or {})}


def _takes_task(kind: type[Task]) -> bool:
    """Return whether `collate` of a class is a method: it needs two arguments."""
    function = inspect.getattr_static(kind, "collate")
    if not isinstance(function, FunctionType):
        return False
    parameters = inspect.signature(function).parameters.values()
    is_required = [each.default is each.empty and each.kind in _POSITIONAL for each in parameters]
    return sum(is_required) == 2


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def move_tensors(
    batch: Any,
    device: torch.device,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Any:
    """Return the batch with all tensors in its tuples, lists and dicts moved to the device."""
    if isinstance(batch, Tensor):
        layout = memory_format if batch.ndim == 4 else torch.preserve_format
        return batch.to(device, non_blocking=non_blocking, memory_format=layout)
    if isinstance(batch, PackedSequence):  # some of its tensors stay on the CPU
        return batch.to(device, non_blocking=non_blocking)  # type: ignore[arg-type]
    if isinstance(batch, dict):
        moved = {
            key: move_tensors(value, device, non_blocking, memory_format)
            for key, value in batch.items()
        }
        if type(batch) is dict:
            return moved
        own = copy.copy(batch)  # such as a dict whose keys are attributes, too
        own.update(moved)
        return own
    if isinstance(batch, list | tuple):
        parts = [move_tensors(value, device, non_blocking, memory_format) for value in batch]
        # The constructor of a named tuple takes its fields as separate arguments.
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
