"""Records what a script logs with TensorBoard, wandb, trackio and MLflow.

Their functions are wrapped once the script imports them. A call does what it does without us, and
what succeeds is recorded: numbers, by the names that the script gives them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from numbers import Real
from types import MethodType, ModuleType
from typing import Any, NamedTuple

import wrapt

from distrain.runners.instrumentation.automatic import hooked

Values = tuple[Mapping[Any, Any], Any]  # by name, and the step or None


class LoggingFunction(NamedTuple):
    """A function of a library that logs values, where the library defines it.

    `source` is what a person calls it, or its library where several functions log the same.
    `read` takes its arguments and returns what they log.
    """

    module: str
    path: str
    source: str
    read: Callable[..., Values]


def install() -> None:
    """Wrap the functions of the libraries that the program has imported, or will import."""
    for module in {function.module for function in FUNCTIONS}:
        wrapt.register_post_import_hook(_wrap_functions, module)


def _wrap_functions(module: ModuleType) -> None:
    for function in FUNCTIONS:
        *owners, name = function.path.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part, None)
        # Another version of the library may not have it.
        if function.module == module.__name__ and hasattr(owner, name):
            original = getattr(owner, name)
            recording = hooked.followed_by(partial(_record, function), original)
            setattr(owner, name, recording)
            _rebind(sys.modules.get(module.__name__.split(".")[0]), name, original, recording)


def _rebind(
    library: ModuleType | None, name: str, original: object, recording: Callable[..., Any]
) -> None:
    """Replace a function, or a method of a run, that a library has taken over before."""
    taken_over: Any = getattr(library, name, None)
    if taken_over is original:
        setattr(library, name, recording)
    elif getattr(taken_over, "__func__", None) is original:
        setattr(library, name, MethodType(recording, taken_over.__self__))


def _record(function: LoggingFunction, /, *args: Any, **kwargs: Any) -> None:
    values, step = function.read(*args, **kwargs)
    if numbers := dict(_numbers(values)):
        hooked.session.log(numbers, step, function.source)


def _numbers(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield numbers and tensors with one element; those of nested mappings as "outer.inner"."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif (number := _number(value)) is not None:
            yield f"{prefix}{name}", number


def _number(value: Any) -> Any:
    """Return a number or a tensor with one element, and None for anything else."""
    if hasattr(value, "detach"):  # a tensor, which may be on a GPU: read later
        return value if value.numel() == 1 and not value.is_complex() else None
    if getattr(value, "size", None) == 1 and hasattr(value, "item"):  # an array
        value = value.item()
    return value if isinstance(value, Real) else None


def _board(writer: Any) -> str:
    """Return what the names of a writer's values begin with, if it is not the first one.

    Training and evaluation usually have writers of their own, which log the same names. It is the
    end of the folder's path that no other writer has, such as `val/` or `fold2/val/`.
    """
    prefixes = hooked.session.automatic.boards.setdefault(type(writer), {})
    path = _absolute(str(getattr(writer, "log_dir", None) or getattr(writer, "logdir", "")))
    if path not in prefixes:
        folders = path.split(os.sep)
        is_time = folders[-1].replace(".", "").isdigit()  # of `add_hparams`
        ends = ("/".join([*folders[-count:], ""]) for count in range(1, len(folders)))
        free = (end for end in ends if end not in prefixes.values())
        prefixes[path] = next(free, f"{path}/") if prefixes and not is_time else ""
    return prefixes[path]


@lru_cache(maxsize=1024)
def _absolute(folder: str) -> str:
    """Return the path of a writer's folder, which stays where it is if the program goes elsewhere.

    If the current folder was deleted, return the path as the program has given it.
    """
    try:
        return os.path.abspath(folder)
    except OSError:
        return folder


def _whole(step: Any) -> Any:
    """Return a step as TensorBoard writes it: without a fraction."""
    return None if step is None else int(step)


# --- what a call logs; parameters have the names that the libraries give them ------------------


def _read_scalar(
    writer: object, tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any
) -> Values:
    return {f"{_board(writer)}{tag}": scalar_value}, _whole(global_step)


def _read_scalars(
    writer: object,
    main_tag: str,
    tag_scalar_dict: Mapping[str, Any],
    global_step: Any = None,
    *_: Any,
    **__: Any,
) -> Values:
    name = f"{_board(writer)}{main_tag}"
    return {f"{name}/{tag}": value for tag, value in tag_scalar_dict.items()}, _whole(global_step)


def _read_wandb(
    _run: object, data: Mapping[str, Any], step: Any = None, *_: Any, **__: Any
) -> Values:
    return data, step


def _read_metric(key: str, value: Any, step: Any = None, *_: Any, **__: Any) -> Values:
    return {key: value}, step


def _read_metrics(metrics: Mapping[str, Any], step: Any = None, *_: Any, **__: Any) -> Values:
    return metrics, step


def _read_trackio(
    _run: object, metrics: Mapping[str, Any], step: Any = None, *_: Any, **__: Any
) -> Values:
    return metrics, step


# `wandb.log` is that method of the run, and `trackio.log` calls it. `mlflow` takes its functions
# over from the module named here.
FUNCTIONS = [
    LoggingFunction("wandb.sdk.wandb_run", "Run.log", "wandb.log", _read_wandb),
    LoggingFunction("wandb.sdk.lib.noop_run", "NoopRun.log", "wandb.log", _read_wandb),  # disabled
    LoggingFunction("trackio.run", "Run.log", "trackio.log", _read_trackio),
    LoggingFunction("mlflow.tracking.fluent", "log_metric", "mlflow", _read_metric),
    LoggingFunction("mlflow.tracking.fluent", "log_metrics", "mlflow", _read_metrics),
    *(
        LoggingFunction(module, f"SummaryWriter.{name}", source, read)
        for module, source in (
            ("torch.utils.tensorboard.writer", "SummaryWriter"),
            ("tensorboardX.writer", "tensorboardX"),
        )
        for name, read in (("add_scalar", _read_scalar), ("add_scalars", _read_scalars))
    ),
]
