"""Checks the members of a user's task, which may have any type and value."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from distrain.models.errors import TaskError
from distrain.models.places import place_of
from distrain.models.streams import has_length, is_stream
from distrain.models.task import Task
from distrain.models.values import describe, to_number

ARGUMENTS = {  # of the methods that a run calls
    "loss": ("model", "batch"),
    "metrics": ("model", "batch"),
    "derived": ("means",),
    "weight": ("batch",),
    "optimizer": ("model",),
    "parameter_groups": ("model",),
    "schedule": ("step", "total_steps"),
}
FUNCTIONS = ("loss", "metrics", "derived", "to")
HOOKS = {  # that look like plain attributes, and how they are written
    "weight": "weight(batch)",
    "optimizer": "optimizer(model)",
    "parameter_groups": "parameter_groups(model)",
    "schedule": "schedule(step, total_steps)",
}
OPTIONAL_FUNCTIONS = ("finish", "collate")
CONTINUAL = "it must be an IterableDataset, of which each __iter__ starts from the beginning"
MAX_ITEM_LENGTH = 32  # it is part of the unit of every rate


def require_members(name: str, task: Task) -> None:
    """Raise TaskError for the first member of a task that cannot be used; `name` is the factory."""
    values = {
        member: _read(name, task, member)
        for member in ("model", "train", "eval", *FUNCTIONS, *HOOKS, *OPTIONAL_FUNCTIONS, *_PLAIN)
    }
    for member, value in values.items():
        if problem := _problem(member, value):
            raise TaskError("task.name", f"`{member}` of {name} {problem}")


def _read(name: str, task: Task, member: str) -> Any:
    try:
        return getattr(task, member)
    except AttributeError:
        raise TaskError("task.name", f"the task of {name} has no `{member}`") from None
    except Exception as error:  # of a property
        problem = f"`{member}` of {name} raised {type(error).__name__}: {error}"
        raise TaskError("task.name", problem) from error


def _problem(member: str, value: Any) -> str:
    """Return what is wrong with a member; empty where it can be used."""
    if member in _PLAIN:
        wanted, fits = _PLAIN[member]
        return "" if fits(value) else f"must be {wanted}, not {_shown(value)}"
    if member == "model":
        return _model_problem(value)
    if member == "eval" and value is None:
        return ""
    if member in ("train", "eval"):
        return _data_problem(member, value)
    if callable(value):
        return _arguments_problem(value, ARGUMENTS[member]) if member in ARGUMENTS else ""
    if value is None and member in OPTIONAL_FUNCTIONS:
        return ""
    wanted = f"a method {HOOKS[member]}" if member in HOOKS else "a function"
    return f"must be {wanted}, not {describe(value)}"


def _arguments_problem(function: Any, wanted: Sequence[str]) -> str:
    """Return what is wrong if a method cannot be called with these arguments, by position."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of functions that are not written in Python
        return ""
    try:
        signature.bind(*wanted)
    except TypeError as error:
        called = f"is called with ({', '.join(wanted)})"
        return f"{called}, which does not fit {place_of(function)}: {error}"
    return ""


def _model_problem(model: Any) -> str:
    if not isinstance(model, nn.Module):
        return f"must be a torch.nn.Module, not {describe(model)}"
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return f"is a {type(model).__name__}: return the module in it, which the run wraps itself"
    tensors = [*model.named_parameters(), *model.named_buffers()]
    lazy = next((name for name, tensor in tensors if is_lazy(tensor)), "")
    return lazy and f"has no size for {lazy} yet: call it once, with a batch, where it is made"


def _data_problem(member: str, data: Any) -> str:
    wanted = "a map-style data set, with __len__ and __getitem__"
    if member == "train":
        if isinstance(data, Iterator):
            return f"is {describe(data)}, which can be iterated only once: {CONTINUAL}"
        if is_stream(data):
            return ""
        wanted += ", or an IterableDataset"
    if is_stream(data):
        return f"is {describe(data)}, whose samples have no numbers: it must be {wanted}"
    if not hasattr(data, "__len__"):
        return f"has no length: it must be {wanted}"
    if not has_length(data):
        return f"has a __len__ that gives no length: it must be {wanted}"
    if not hasattr(data, "__getitem__"):
        return f"is {describe(data)}, whose samples have no numbers: it must be {wanted}"
    return ""


def _is_item(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_ITEM_LENGTH


def _is_finite(value: Any) -> bool:
    number = None if isinstance(value, bool) else to_number(value)
    return number is not None and math.isfinite(number)


_PLAIN = {
    "item": (
        f'a word of at most {MAX_ITEM_LENGTH} printable characters, such as "token"',
        _is_item,
    ),
    "items_per_sample": ("a number > 0", lambda value: _is_finite(value) and value > 0),
    "flops_per_sample": ("a number >= 0", lambda value: _is_finite(value) and value >= 0),
    "best": ("the name of a metric", lambda value: isinstance(value, str)),
    "best_is": ('"max" or "min"', lambda value: value in ("max", "min")),
}


def _shown(value: Any) -> str:
    number = to_number(value)
    if number is not None and not isinstance(value, bool):
        return f"{number:g}"
    return ascii(value)[:60] if isinstance(value, str | bool) else describe(value)
