"""The optimizer and the schedule of a task: its own, or those of the config with its groups."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from distrain.models.errors import TaskError
from distrain.models.places import place_of
from distrain.models.task import Task, give_turn, overrides
from distrain.models.values import describe, to_number
from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.config.training_sections import TrainConfig
from distrain.runners.training.optim import (
    BUILTIN,
    Groups,
    make_schedule,
    optimizer_of_config,
    require_optimizer,
)
from distrain.runners.training.turns import Turns

MOST_NAMES = 5  # of parameters, in a message
NUMBERS = (np.generic, tuple)  # of numpy, alone or several, in a group


def make_optimizer(
    config: TrainConfig, task: Task, model: nn.Module, **options: Any
) -> tuple[Optimizer, float | None]:
    """Make the optimizer; each group has its "lr_scale", a factor of the run's learning rate.

    Also returns this rate where it is the task's and not `train.lr`: the first above 0 of the
    groups of the task's own optimizer. `options` override those of a built-in optimizer. Raises
    TaskError where parameters of the model are left out, or a group has no learning rate.
    """
    own = own_optimizer(task, model)
    if own is None and config.optimizer in BUILTIN:
        _require_dense_gradients(config, model)
    optimizer = own or optimizer_of_config(config, parameter_groups(task, model), **options)
    source = task.optimizer if own else task.parameter_groups
    _require_all_parameters(optimizer, model, place_of(source))
    key, name = ("task.name", place_of(source)) if own else ("train.optimizer", config.optimizer)
    try:
        rates = [float(group["lr"]) for group in optimizer.param_groups]
    except (KeyError, TypeError, ValueError):
        problem = 'must give each group of parameters a learning rate ("lr"), which is a number'
        raise TaskError(key, f"{name} {problem}") from None
    own_rate = next((rate for rate in rates if rate > 0), None) if own else None
    if own and own_rate is None:
        raise TaskError(key, f"{name} must give at least one group a learning rate above 0")
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr_scale"] = rate / (own_rate or config.lr) * group.get("lr_scale", 1.0)
        # Checkpoints are loaded without types of numpy.
        numbers = {name: each for name, each in group.items() if isinstance(each, NUMBERS)}
        group |= tree_map_only(np.generic, np.generic.item, numbers)
    return optimizer, own_rate


def _require_dense_gradients(config: TrainConfig, model: nn.Module) -> None:
    for name, each in model.named_modules():
        is_embedding = isinstance(each, nn.Embedding | nn.EmbeddingBag)
        if is_embedding and each.sparse and each.weight.requires_grad:
            problem = f"{config.optimizer} takes no sparse gradients, which "
            problem += f"{name or type(each).__name__} of the model has: make it with "
            problem += "sparse=False, or set the optimizer torch.optim:SparseAdam or :SGD"
            raise TaskError("train.optimizer", problem)


def base_rate(config: TrainConfig, plan: Plan, own_rate: float | None) -> float:
    """Return the learning rate that the schedule multiplies: `own_rate`, or that of the config.

    `train.scale_lr` applies to both.
    """
    return plan.lr if own_rate is None else own_rate * plan.lr / config.lr


def own_optimizer(task: Task, model: nn.Module) -> Optimizer | None:
    """Return the task's own optimizer, or its optimizers in turn. Raises TaskError."""
    made = task.optimizer(model)
    if made is None:
        return None
    if isinstance(made, list | tuple):
        problem = (
            f"{place_of(task.optimizer)} returned {describe(made)}: return an optimizer, or a "
        )
        problem += "dict of several that take turns; a schedule is a method of the task"
        raise TaskError("task.name", problem)
    several = made if isinstance(made, Mapping) else {"": made}
    for each in several.values():
        require_optimizer(each, place_of(task.optimizer), "task.name")
    if not several:
        raise TaskError("task.name", f"{place_of(task.optimizer)} returned no optimizer")
    if not isinstance(made, Mapping):
        return made
    try:
        turns = Turns(several)
    except ValueError as error:  # a parameter that two of them train
        raise TaskError("task.name", f"{place_of(task.optimizer)}: {error}") from None
    give_turn(task, turns.begin(0))
    return turns


def parameter_groups(task: Task, model: nn.Module) -> Groups:
    """Return the groups that the task makes, or all trained parameters. Raises TaskError."""
    groups = task.parameter_groups(model)
    if groups is None:
        return [each for each in model.parameters() if each.requires_grad]
    groups = list(groups) if isinstance(groups, Iterable) else []
    if not all(isinstance(group, dict) and "params" in group for group in groups) or not groups:
        problem = f'{place_of(task.parameter_groups)} must return a list of dicts with "params"'
        raise TaskError("task.name", problem)
    found = [group | {"params": list(group["params"])} for group in groups]
    others = (each for group in found for each in group["params"] if not isinstance(each, Tensor))
    if (other := next(others, None)) is not None:
        problem = f'{place_of(task.parameter_groups)} must return parameters as "params", not '
        raise TaskError("task.name", problem + describe(other))
    return found


def _require_all_parameters(optimizer: Optimizer, model: nn.Module, place: str) -> None:
    names = {each: name for name, each in model.named_parameters()}
    held = [each for group in optimizer.param_groups for each in group["params"]]
    if not all(each in names for each in held):
        problem = f"{place} has parameters that are not those of the `model` that it is given"
        raise TaskError("task.name", problem)
    left = [name for each, name in names.items() if each.requires_grad and each not in set(held)]
    if left:
        shown = ", ".join([*left[:MOST_NAMES], "…"] if len(left) > MOST_NAMES else left)
        problem = f"{place} leaves out {formatting.plural(len(left), 'parameter')} ({shown}): "
        problem += "train them too, or freeze them by requires_grad_(False)"
        raise TaskError("task.name", problem)


def option_names(optimizer: Optimizer) -> set[str]:
    """Return the options of a group, which a config or a task decides; the others are state.

    They are the arguments of the optimizer's class. Some optimizers keep numbers of the training
    in their groups.
    """
    kinds = optimizer.kinds if isinstance(optimizer, Turns) else [type(optimizer)]
    classes = {each for kind in kinds for each in kind.__mro__ if issubclass(each, Optimizer)}
    names = {name for each in classes for name in inspect.signature(each.__init__).parameters}
    return (names | {"lr", "lr_scale"}) - {"params"}


def has_own_schedule(task: Task) -> bool:
    """Return whether the task replaces the schedule of the config."""
    return overrides(task, "schedule")


def make_rate(
    config: TrainConfig, task: Task, lr: float, steps_per_epoch: int, total_steps: int
) -> Callable[[int], float]:
    """Return the function from a step, counted from 0, to its learning rate: see `make_schedule`.

    A task's own schedule takes precedence; it gives factors of `lr`. Raises TaskError.
    """
    if not has_own_schedule(task):
        return make_schedule(config, lr, steps_per_epoch, total_steps)

    def rate(step: int) -> float:
        return lr * _factor(task, step, total_steps)

    rate(0)  # a mistake in it is found before training
    return rate


def _factor(task: Task, step: int, total_steps: int) -> float:
    """Return the factor of the task's schedule. Raises TaskError where it is none."""
    returned = task.schedule(step, total_steps)
    factor = to_number(returned)
    if factor is not None and math.isfinite(factor) and factor >= 0:
        return factor
    found = describe(returned) if factor is None else f"{factor:g}"
    problem = f"{place_of(task.schedule)} must return a factor of the learning rate, a number >= 0"
    raise TaskError("task.name", f"{problem}, but it returned {found} for step {step}")
