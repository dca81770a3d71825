"""Builds a Task from the names and arguments of a config.

A factory is called with the `args` of its section, and with those of the following that its
signature names:

    data    root, download, seed, device
    model   shape, classes, data_name
    task    model, data (built from their sections only if named), label_smoothing, seed, device
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args, get_origin

import torch
from torch import nn

from distrain.models.catalog import ComponentKind, resolve
from distrain.models.data import Data, FirstSamples, length, take_first
from distrain.models.errors import TaskError, nearest
from distrain.models.hooks import require_own_hooks
from distrain.models.importing import Factory
from distrain.models.members import require_members
from distrain.models.streams import is_stream
from distrain.models.task import Task


class Named(Protocol):
    """A section that names a factory: `[task]` or `[model]`."""

    @property
    def name(self) -> str: ...
    @property
    def args(self) -> Mapping[str, Any]: ...


class DataSection(Named, Protocol):
    """The section `[data]`."""

    @property
    def root(self) -> str | None: ...
    @property
    def download(self) -> bool: ...
    @property
    def train_limit(self) -> int | None: ...
    @property
    def eval_limit(self) -> int | None: ...


def build_task(
    task: Named,
    model: Named,
    data: DataSection,
    *,
    label_smoothing: float = 0.0,
    seed: int = 0,
    device: torch.device | None = None,
) -> Task:
    """Build the task of three config sections; its model is on the CPU.

    Weights are drawn from torch's global generator: seed it before. `device` is where synthetic
    data may be kept. Raises TaskError for mistakes in the config. Exceptions of a user's own
    code pass unchanged.
    """
    factory = resolve("task", task.name)
    parameters = inspect.signature(factory).parameters.keys() - task.args.keys()
    if label_smoothing and "label_smoothing" not in parameters | task.args.keys():
        raise TaskError("train.label_smoothing", f"{task.name} does not use it; leave it at 0")
    device = device or torch.device("cpu")
    offered: dict[str, Any] = {"label_smoothing": label_smoothing, "seed": seed, "device": device}
    if parameters & {"data", "model"}:
        built_data = build_data(data, seed=seed, device=device)
        offered["data"] = built_data
        if "model" in parameters:
            offered["model"] = build_model(model, built_data, data.name)
    built = _call("task", task, factory, offered)
    _check_task(task.name, built)
    assert isinstance(built, Task)
    if not is_stream(built.train):  # whoever reads a stream applies its limit
        _limit(task.name, built, "train", data.train_limit)
    if built.eval is not None:
        _limit(task.name, built, "eval", data.eval_limit)
    return built


def _limit(name: str, task: Task, member: str, limit: int | None) -> None:
    """Let a task keep the first samples of a data set. Raises TaskError."""
    dataset = getattr(task, member)
    if limit is None or length(dataset) <= limit:
        return
    try:
        object.__setattr__(task, member, take_first(dataset, limit))  # also of a frozen dataclass
    except AttributeError:
        problem = f"`{member}` of {name} is a property, which cannot be replaced by its first "
        raise TaskError(f"data.{member}_limit", f"{problem}samples: set it in __init__") from None


def own_parts(section: Named, task: Task) -> dict[str, str]:
    """Return the class names of what a task has in place of `[model]` and `[data]`, by section.

    Its factory takes neither of those, or only one.
    """
    names = inspect.signature(resolve("task", section.name)).parameters.keys() - section.args.keys()
    train = task.train.dataset if isinstance(task.train, FirstSamples) else task.train
    own = {"model": type(task.model).__name__, "data": type(train).__name__}
    return {name: kind for name, kind in own.items() if name not in names}


def build_data(section: DataSection, *, seed: int, device: torch.device) -> Data:
    """Build the data of `[data]`, without applying its limits. Raises TaskError."""
    offered = {"root": section.root, "download": section.download, "seed": seed, "device": device}
    built = _call("data", section, resolve("data", section.name), offered)
    if not isinstance(built, Data):
        problem = f"{section.name} returned {_type_of(built)}, not a distrain.models.data.Data"
        raise TaskError("data.name", problem)
    return built


def build_model(section: Named, data: Data, data_name: str) -> nn.Module:
    """Build the network of `[model]` for this data. Raises TaskError."""
    offered = {"shape": data.shape, "classes": data.classes, "data_name": data_name}
    known = {key: value for key, value in offered.items() if value is not None}
    built = _call("model", section, resolve("model", section.name), known)
    if not isinstance(built, nn.Module):
        problem = f"{section.name} returned {_type_of(built)}, not a torch.nn.Module"
        raise TaskError("model.name", problem)
    return built


def _check_task(name: str, built: object) -> None:
    if not isinstance(built, Task):
        problem = f"{name} returned {_type_of(built)}, not a distrain.models.task.Task"
        raise TaskError("task.name", problem)
    require_own_hooks(built)
    require_members(name, built)


def _type_of(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _call(kind: ComponentKind, section: Named, factory: Factory, offered: Mapping[str, Any]) -> Any:
    return call_factory(f"{kind}.args", section.name, section.args, factory, offered)


def call_factory(
    key: str, name: str, args: Mapping[str, Any], factory: Factory, offered: Mapping[str, Any]
) -> Any:
    """Call the factory with `args` and those `offered` values that are among its parameters.

    Raises TaskError with this key, before the call, where an argument does not fit or is missing.
    """
    parameters = _parameters(factory)
    named = [each for each, parameter in parameters.items() if parameter.kind in _BY_NAME]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for each, value in args.items():
        if each in named:
            if expected := _expected(value, parameters[each].annotation):
                raise TaskError(key, f"{each} of {name} must be {expected}, not {value!r}")
        elif not takes_any:
            hint = nearest(each, set(named) - offered.keys())
            raise TaskError(key, f"{name} takes no argument {each!r}{hint}")
    given = {each: offered[each] for each in named if each in offered} | dict(args)
    missing = [each for each in named if each not in given and _is_required(parameters[each])]
    if missing:
        raise TaskError(key, f"{name} needs {', '.join(missing)}")
    return factory(**given)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory, eval_str=True).parameters
    except Exception:  # annotations may name types that only a type checker knows
        return inspect.signature(factory).parameters


_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _expected(value: Any, annotation: Any) -> str | None:
    """Return what the value must be; None if it fits, or if the annotation is not a simple one."""
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return None if value in choices else " or ".join(map(repr, choices))
    if get_origin(annotation) is Sequence and get_args(annotation)[0] in _TYPE_NAMES:
        (item,) = get_args(annotation)
        fits = isinstance(value, list | tuple) and all(_is_a(part, item) for part in value)
        return None if fits else f"a list, each {_TYPE_NAMES[item]}"
    is_simple = isinstance(annotation, type) and annotation in _TYPE_NAMES  # [int] has no hash
    if not is_simple or _is_a(value, annotation):
        return None
    return _TYPE_NAMES[annotation]


def _is_a(value: Any, kind: type) -> bool:
    """Return whether a value of TOML has the type; a bool is no int, an int is a float."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
