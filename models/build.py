"""From the names and arguments of a config to a Task.

A factory is called with the `args` of its section and with those things on offer that its
signature names:

    data    root, download, seed, device
    model   shape, classes, data_name
    task    model, data (made from their sections only if named), label_smoothing, seed, device
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args, get_origin

import torch
from torch import nn

from models.catalog import Kind, resolve
from models.data import Data, limited
from models.errors import TaskError, nearest
from models.importing import Factory
from models.task import Task


class Named(Protocol):
    """A section that names a factory, as `[task]` and `[model]` do."""

    @property
    def name(self) -> str: ...
    @property
    def args(self) -> Mapping[str, Any]: ...


class DataSection(Named, Protocol):
    """`[data]`."""

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
    """Make the task of three config sections; the model is on the CPU.

    Weights are drawn from torch's global generator: seed it before. `device` is only where
    synthetic data may lie. Raises TaskError for what the user can mend in the config; what a
    user's own code raises comes out as it is.
    """
    factory = resolve("task", task.name)
    wanted = inspect.signature(factory).parameters.keys() - task.args.keys()
    if label_smoothing and "label_smoothing" not in wanted | task.args.keys():
        raise TaskError("train.label_smoothing", f"{task.name} has no use for it; leave it at 0")
    device = device or torch.device("cpu")
    offered: dict[str, Any] = {"label_smoothing": label_smoothing, "seed": seed, "device": device}
    if wanted & {"data", "model"}:
        offered["data"] = made = build_data(data, seed=seed, device=device)
        if "model" in wanted:
            offered["model"] = build_model(model, made, data.name)
    built = _call("task", task, factory, offered)
    _check_task(task.name, built)
    assert isinstance(built, Task)
    built.train = limited(built.train, data.train_limit)
    built.eval = limited(built.eval, data.eval_limit)
    return built


def build_data(section: DataSection, *, seed: int, device: torch.device) -> Data:
    """Make the data of `[data]`, limits not yet applied. Raises TaskError."""
    offered = {"root": section.root, "download": section.download, "seed": seed, "device": device}
    made = _call("data", section, resolve("data", section.name), offered)
    if not isinstance(made, Data):
        raise TaskError("data.name", f"{section.name} gave {_a(made)}, not a models.data.Data")
    return made


def build_model(section: Named, data: Data, data_name: str) -> nn.Module:
    """Make the network of `[model]` for `data`. Raises TaskError."""
    offered = {"shape": data.shape, "classes": data.classes, "data_name": data_name}
    known = {key: value for key, value in offered.items() if value is not None}
    made = _call("model", section, resolve("model", section.name), known)
    if not isinstance(made, nn.Module):
        raise TaskError("model.name", f"{section.name} gave {_a(made)}, not a torch.nn.Module")
    return made


def _check_task(name: str, built: object) -> None:
    if not isinstance(built, Task):
        raise TaskError("task.name", f"{name} gave {_a(built)}, not a models.task.Task")
    for part in ("model", "train", "eval"):
        if not hasattr(built, part):
            raise TaskError("task.name", f"the task of {name} has no `{part}`")
    for part in ("train", "eval"):
        if not hasattr(getattr(built, part), "__len__"):
            raise TaskError(
                "task.name",
                f"`{part}` of {name} has no length: it must be a map-style data set, "
                "with __len__ and __getitem__",
            )


def _a(thing: object) -> str:
    return "nothing" if thing is None else f"a {type(thing).__name__}"


def _call(kind: Kind, section: Named, factory: Factory, offered: Mapping[str, Any]) -> Any:
    """Call with what is given and what is on offer, once all of it is known to fit."""
    key, parameters = f"{kind}.args", _parameters(factory)
    named = [name for name, parameter in parameters.items() if parameter.kind in _BY_NAME]
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in section.args.items():
        if name in named:
            if fault := _misfit(value, parameters[name].annotation):
                raise TaskError(key, f"{name} of {section.name} must be {fault}, not {value!r}")
        elif not open_ended:
            hint = nearest(name, set(named) - offered.keys())
            raise TaskError(key, f"{section.name} takes no argument {name!r}{hint}")
    given = {name: offered[name] for name in named if name in offered} | dict(section.args)
    lacking = [name for name in named if name not in given and _required(parameters[name])]
    if lacking:
        raise TaskError(key, f"{section.name} needs {', '.join(lacking)}")
    return factory(**given)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory, eval_str=True).parameters
    except Exception:  # annotations may name what only a type checker sees
        return inspect.signature(factory).parameters


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _misfit(value: Any, wanted: Any) -> str | None:
    """What the value should be, where the annotation is simple enough to tell it is not."""
    if get_origin(wanted) is Literal:
        choices = get_args(wanted)
        return None if value in choices else " or ".join(map(repr, choices))
    if get_origin(wanted) is Sequence and get_args(wanted)[0] in _WORDS:
        (item,) = get_args(wanted)
        fits = isinstance(value, list | tuple) and all(_is(part, item) for part in value)
        return None if fits else f"a list, each {_WORDS[item]}"
    return None if wanted not in _WORDS or _is(value, wanted) else _WORDS[wanted]


def _is(value: Any, wanted: type) -> bool:
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, (int, float) if wanted is float else wanted)
