"""Methods of a task that look like hooks, but that distrain does not call."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from distrain.models.errors import TaskError
from distrain.models.places import place_of
from distrain.models.task import Task

# Hooks of Lightning, and what does their work here.
FOREIGN = {
    "configure_optimizers": "write optimizer(model) and schedule(step, total_steps)",
    "configure_gradient_clipping": "set train.clip_norm",
    "optimizer_step": "write optimizer(model)",
    "lr_scheduler_step": "write schedule(step, total_steps)",
    "training_step": "write loss(model, batch)",
    "validation_step": "write metrics(model, batch)",
    "test_step": "write metrics(model, batch)",
    "on_validation_epoch_end": "write derived(means)",
    "train_dataloader": "set the data set `train`",
    "val_dataloader": "set the data set `eval`",
    "test_dataloader": "set the data set `eval`",
    **dict.fromkeys(("on_fit_start", "on_train_start"), "do it in __init__"),
    **dict.fromkeys(
        (
            "on_train_epoch_start",
            "on_train_epoch_end",
            "on_train_batch_start",
            "on_train_batch_end",
        ),
        "only loss(model, batch) runs in training",
    ),
}
SIMILARITY = 0.85  # of two names, from which one is a misspelling of the other


def require_own_hooks(task: Task) -> None:
    """Raise TaskError where the class of a task defines a hook of another library."""
    for name, method in _public_methods(task):
        if name in FOREIGN:
            problem = f"{place_of(method)} would never be called: {FOREIGN[name]}"
            raise TaskError("task.name", problem)


def misspelt_hooks(task: Task) -> list[str]:
    """Return a sentence for each method whose name is almost that of a hook."""
    known = [name for name, value in vars(Task).items() if callable(value) and name != "log"]
    sentences = []
    for name, method in _public_methods(task):
        if not hasattr(Task, name) and (
            close := difflib.get_close_matches(name, known, n=1, cutoff=SIMILARITY)
        ):
            sentences.append(f"{place_of(method)} is not called by distrain: is it {close[0]}()?")
    return sentences


def _public_methods(task: Task) -> Iterator[tuple[str, object]]:
    """Yield the methods of the user's classes that extend Task, those of libraries left out.

    A method that another one of them uses is no hook, whatever its name.
    """
    kinds = [each for each in type(task).__mro__ if issubclass(each, Task) and each is not Task]
    used = {
        other
        for kind in kinds
        for name, value in vars(kind).items()
        for other in _names_in(value)
        if other != name
    }
    for kind in kinds:
        for name, value in vars(kind).items():
            if callable(value) and not name.startswith("_") and name not in used:
                yield name, value


def _names_in(value: Any) -> Iterator[str]:
    """Yield the names of all attributes and globals in the code of a method or a property."""
    value = getattr(value, "fget", getattr(value, "__func__", value))
    codes = [value.__code__] if isinstance(value, FunctionType) else []
    while codes:
        code = codes.pop()
        yield from code.co_names
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
