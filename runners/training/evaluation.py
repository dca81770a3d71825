"""Exact evaluation: every sample once; sums and counts in one all-reduce, then other states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from distrain.models.errors import TaskError
from distrain.models.metric_state import (
    MetricState,
    compute,
    is_metric_state,
    read_state,
)
from distrain.models.places import place_of
from distrain.models.task import Sums, Task
from distrain.models.values import describe, is_number, to_number
from distrain.runners.distributed.process_group import World
from distrain.runners.protocol.evaluated_batches import note_evaluated_batch
from distrain.runners.protocol.events import Metric
from distrain.runners.training.precision import Precision

SUMS_FORM = "{name: (sum over the batch, count)}"  # what metrics() returns


@torch.no_grad()
def evaluate(
    task: Task,
    model: nn.Module,
    batches: Iterable[tuple[Any, int]],
    precision: Precision,
    world: World,
) -> tuple[int, dict[str, Metric]]:
    """Return samples and metrics of the whole evaluation set, the same on every rank.

    `batches` yields this rank's (batch, samples). A batch with 0 samples counts for nothing;
    it only lets a rank without samples take part. Sums and counts are reduced as float64, in
    which integers are exact up to 2⁵³. Rank 0 merges the states of metric objects, in the order of
    the samples, and computes their values.
    """
    states = MetricStates()
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, torch.Tensor] = {}
    samples = 0
    names: Set[str] | None = None  # of the first batch
    with in_evaluation_mode(model):
        for batch, size in batches:
            note_evaluated_batch()
            with precision.autocast():
                batch_sums = task.metrics(model, batch)
            samples += size
            pairs = states.take(batch_sums, is_counted=size > 0)
            require_pairs(task, pairs)
            if names not in (None, pairs.keys()):
                raise other_names(task)
            names = pairs.keys()
            for name, pair in pairs.items():
                for added, value in zip((sums, counts), pair, strict=True):
                    part = _in_float64(value)
                    added[name] = added.get(name, 0) + (part if size else torch.zeros_like(part))
    all_samples, reduced = _reduce(world, samples, sums, counts)
    metrics = {
        name: Metric.of(total, _whole(name, count)) for name, (total, count) in reduced.items()
    }
    for name, value in states.compute(world).items():
        if name in metrics:
            raise TaskError("task.name", f"two values of {place_of(task.metrics)} are named {name}")
        metrics[name] = Metric.of(value, 1)
    return all_samples, metrics | derive(task, metrics)


def _reduce(
    world: World,
    samples: int,
    sums: Mapping[str, torch.Tensor],
    counts: Mapping[str, torch.Tensor],
) -> tuple[int, dict[str, tuple[float, float]]]:
    """Return the samples of all ranks, and their (sum, count) by name, with one all-reduce."""
    names = sorted(sums)
    numbers = [samples, *(float(counts[name]) for name in names)]
    table = torch.cat(
        [
            torch.tensor(numbers, dtype=torch.float64, device=world.device),
            *(sums[name].to(world.device).reshape(1) for name in names),
        ]
    )
    world.all_reduce_(table)
    all_samples, *values = table.tolist()
    pairs = zip(values[len(names) :], values[: len(names)], strict=True)
    return int(all_samples), dict(zip(names, pairs, strict=True))


def require_pairs(task: Task, returned: Mapping[str, object]) -> None:
    """Raise TaskError where a metric of a batch is not a sum and a count; waits for no device."""
    for name, pair in returned.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            problem = f"{place_of(task.metrics)} must return {SUMS_FORM}, but {name} is "
            problem += describe(pair)
            if is_number(pair):
                problem += ": return its sum and its count, not a mean"
            raise TaskError("task.name", problem)
        for part, value in zip(("sum", "count"), pair, strict=True):
            if not is_number(value):
                problem = f"the {part} of {name} must be a number, but {place_of(task.metrics)} "
                raise TaskError("task.name", f"{problem}returned {describe(value)}")


def other_names(task: Task) -> TaskError:
    """Return the error of a task that returns some metrics only for some batches."""
    problem = f"{place_of(task.metrics)} returned other names for other samples"
    return TaskError("task.name", f"{problem}; return each metric for every batch")


class MetricStates:
    """The metric objects of one evaluation, by the names that the task gives them."""

    def __init__(self) -> None:
        self._objects: dict[str, list[MetricState]] = {}
        self._is_counted = False

    def take(self, returned: Sums, is_counted: bool = True) -> dict[str, tuple[Any, Any]]:
        """Note the objects of a batch, and return its sums and counts.

        `is_counted` is False on a rank without samples.
        """
        self._is_counted = is_counted
        pairs: dict[str, tuple[Any, Any]] = {}
        for name, value in returned.items():
            if not is_metric_state(value):
                pairs[name] = value  # type: ignore[assignment]
                continue
            objects = self._objects.setdefault(name, [])
            if not (objects and objects[-1] is value):
                objects.append(value)
        return pairs

    def compute(self, world: World) -> dict[str, float]:
        """Return the values over the batches of all ranks, and reset the objects."""
        if not self._objects:
            return {}
        own = {name: list(map(read_state, each)) for name, each in self._objects.items()}
        ranks = world.gather_objects(own if self._is_counted else {})
        values: dict[str, float] = {}
        with world.waiting_for_leader():  # an average precision may take it minutes
            for name, objects in self._objects.items() if world.is_leader else ():
                states = [state for rank in ranks for state in rank.get(name, ())]
                values |= compute(name, objects[0], states)
        for objects in self._objects.values():
            for each in objects:
                each.reset()
        found: dict[str, float] = world.broadcast_object(values)
        return found


def _in_float64(value: torch.Tensor | float) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.double()
    return torch.tensor(to_number(value), dtype=torch.float64)  # also of integers beyond int64


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluate within the block; afterwards each module has its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, was_training in modes:
            module.training = was_training


def _whole(name: str, count: float) -> int:
    if not count.is_integer():
        problem = f"the count of {name} is {count:g}; metrics() must return whole numbers as counts"
        raise TaskError("task.name", problem)
    return int(count)


def derive(task: Task, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return what the task derives from the means, as means of one value each."""
    means = {name: metric.value for name, metric in metrics.items()}
    known = {name: value for name, value in means.items() if value is not None}
    derived = task.derived(known) if len(known) == len(metrics) else {}
    if not isinstance(derived, Mapping):
        problem = f"{place_of(task.derived)} must return a dict, not a {type(derived).__name__}"
        raise TaskError("task.name", problem)
    if repeated := derived.keys() & metrics.keys():
        name = min(repeated)
        raise TaskError("task.name", f"{name} is in both metrics() and derived() of the task")
    return {name: Metric.of(_derived_number(task, name, derived[name]), 1) for name in derived}


def _derived_number(task: Task, name: object, value: object) -> float:
    number = to_number(value)
    if isinstance(name, str) and number is not None:
        return number
    place = place_of(task.derived)
    if not isinstance(name, str):
        raise TaskError("task.name", f"a name that {place} returned is {describe(name)}, not text")
    raise TaskError("task.name", f"{name} of {place} must be a number, not {describe(value)}")
