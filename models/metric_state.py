"""Metrics that are no means of samples, such as AUC or F1: objects with a state that can be merged.

A metric is any object with `reset()`, `compute()` and `reductions`, a dict from the names of its
attributes to how those of several batches or ranks become one: "sum", "max", "min", or "cat" of
tensors; lists are joined. The metrics of torchmetrics are accepted as they are, also those that
consist of others. This module does not import torchmetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from distrain.models.errors import TaskError
from distrain.models.values import describe, to_number

Reduction = str | Callable[[Tensor], Tensor] | None
State = dict[tuple[str, str], Any]
"""Values on the CPU, by the path of the part of the metric and the name of its attribute."""


class MetricState(Protocol):
    """What a metric object has; `update` gets what the task gives it."""

    @property
    def reductions(self) -> Mapping[str, str]: ...
    def reset(self) -> None: ...
    def compute(self) -> Any: ...


def is_metric_state(value: object) -> TypeGuard[MetricState]:
    """Return whether `metrics` of a task returned a metric object in place of a sum and a count."""
    has_methods = all(callable(getattr(value, name, None)) for name in ("compute", "reset"))
    return has_methods and (hasattr(value, "reductions") or _is_torchmetrics(value))


def move_metrics(owner: object, device: torch.device) -> None:
    """Move the metrics that are attributes of a task to the device, where they can be moved."""
    for value in vars(owner).values():
        if isinstance(value, nn.Module) and any(map(_is_torchmetrics, value.modules())):
            value.to(device)


def read_state(metric: MetricState) -> State:
    """Return a copy of the state of a metric, on the CPU, which can be sent to other ranks.

    Raises TaskError where the metric lacks an attribute that it names.
    """
    state: State = {}
    for path, part in _parts(metric):
        for name in _reductions(part):
            if not hasattr(part, name):
                problem = f"{_name(part)} has no attribute {name}, which its reductions name"
                raise TaskError("task.name", problem)
            state[path, name] = tree_map(_copy_to_cpu, getattr(part, name))
    return state


def merge_states(metric: MetricState, states: Sequence[State]) -> State:
    """Return the state that the metric would have after the updates of all these states, in order.

    Raises TaskError where it is not known how.
    """
    merged: State = {}
    for path, part in _parts(metric):
        for name, reduction in _reductions(part).items():
            values = [state[path, name] for state in states]
            try:
                merged[path, name] = _merge(reduction, values)
            except (TypeError, RuntimeError, ValueError) as error:
                problem = f"the state {name} of {_name(metric)} cannot be merged: {error}"
                raise TaskError("task.name", problem) from None
    if not merged:
        problem = f"{_name(metric)} has no state that can be merged between ranks"
        raise TaskError("task.name", problem)
    return merged


def compute(name: str, metric: MetricState, states: Sequence[State]) -> dict[str, float]:
    """Return the values of a metric over all these states, in order, by name.

    Their merged state becomes that of the metric. A metric that computes a dict has several: those
    of its values that are single numbers, by its own name and that of each. Raises TaskError.
    """
    _write_state(metric, merge_states(metric, states))
    with _without_sync(metric):
        result = metric.compute()
    if isinstance(result, Mapping):
        numbers = {f"{name}_{key}": _to_single_number(value) for key, value in result.items()}
        found = {key: number for key, number in numbers.items() if number is not None}
    else:
        number = _to_single_number(result)
        found = {} if number is None else {name: number}
    if not found:
        problem = f"compute() of {_name(metric)} must return a number or a dict of numbers, not "
        raise TaskError("task.name", problem + describe(result))
    return found


def _write_state(metric: MetricState, state: State) -> None:
    """Replace the state of a metric, on its own device."""
    for path, part in _parts(metric):
        device = _device(part)
        for name in _reductions(part):
            values = tree_map(
                lambda value: value.to(device) if isinstance(value, Tensor) else value,  # noqa: B023
                state[path, name],
            )
            setattr(part, name, values)


def _merge(reduction: Reduction, values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, list):
        return [each for value in values for each in value]
    match getattr(reduction, "__name__", reduction):
        case "sum" | "dim_zero_sum" if isinstance(first, Tensor):
            stacked = torch.stack(list(values))
            wide = stacked.double() if first.is_floating_point() else stacked
            return wide.sum(0).to(first.dtype)
        case "sum":
            return sum(values[1:], start=first)
        case "cat" | "dim_zero_cat":
            return torch.cat([torch.atleast_1d(value) for value in values])
        case "max" | "dim_zero_max":
            return torch.stack(list(values)).amax(0) if isinstance(first, Tensor) else max(values)
        case "min" | "dim_zero_min":
            return torch.stack(list(values)).amin(0) if isinstance(first, Tensor) else min(values)
        case str():
            raise ValueError(
                f'its reduction must be "sum", "cat", "max" or "min", not {reduction!r}'
            )
    if len(values) == 1:
        return first
    stacked = torch.stack(list(values))
    return reduction(stacked) if callable(reduction) else stacked


def _parts(metric: Any) -> Iterator[tuple[str, Any]]:
    """Yield the metric, or if it is one of torchmetrics, it and those that it consists of."""
    if not _is_torchmetrics(metric):
        yield "", metric
        return
    # The hash of such a metric changes with its state, so duplicates cannot be told from others.
    for path, part in list(metric.named_modules(remove_duplicate=False)):
        if _is_torchmetrics(part):
            yield path, part


def _reductions(part: Any) -> Mapping[str, Reduction]:
    found: Mapping[str, Reduction] = part._reductions if _is_torchmetrics(part) else part.reductions
    return found


def _is_torchmetrics(value: object) -> bool:
    return isinstance(value, nn.Module) and isinstance(getattr(value, "_reductions", None), dict)


def _device(part: Any) -> torch.device:
    if _is_torchmetrics(part):
        device: torch.device = part.device
        return device
    own = [value for name in part.reductions if isinstance(value := getattr(part, name), Tensor)]
    return own[0].device if own else torch.device("cpu")


@contextmanager
def _without_sync(metric: Any) -> Iterator[None]:
    """Keep torchmetrics from reducing between ranks, and from returning an earlier result."""
    parts = [part for _, part in _parts(metric) if _is_torchmetrics(part)]
    before = [part._to_sync for part in parts]
    for part in parts:
        part._to_sync = False
        part._computed = None
    try:
        yield
    finally:
        for part, value in zip(parts, before, strict=True):
            part._to_sync = value


def _copy_to_cpu(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value


def _to_single_number(value: object) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.reshape(())
    return to_number(value)


def _name(metric: object) -> str:
    return type(metric).__name__
