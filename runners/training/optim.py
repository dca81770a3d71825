"""Optimizers and learning-rate schedules that the config names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from distrain.models.build import call_factory
from distrain.models.errors import TaskError
from distrain.models.importing import load
from distrain.runners.config.training_sections import TrainConfig

FULL = (torch.float32, torch.float64)
BUILTIN = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
# What torch's Adam and RMSprop keep for options that may be turned on later.
STATE_OF_OPTIONS = {
    "amsgrad": "max_exp_avg_sq",
    "centered": "grad_avg",
    "momentum": "momentum_buffer",
}

Groups = list[nn.Parameter] | list[dict[str, Any]]


def optimizer_of_config(config: TrainConfig, groups: Groups, **options: Any) -> Optimizer:
    """Make the optimizer that the config names. Raises TaskError.

    Of the built-in ones the kernels are fused where that is possible; `options` override that.
    """
    name = config.optimizer
    offered: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    if name in BUILTIN:
        is_fused = _can_be_fused(name, groups, config.optimizer_args)
        offered |= {"momentum": config.momentum, "fused": is_fused, **options}
    factory = BUILTIN[name] if name in BUILTIN else load("train.optimizer", name)
    key = "train.optimizer_args"
    try:
        made = call_factory(key, name, config.optimizer_args, partial(factory, groups), offered)
    except ValueError as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(key, f"{name}: {error}") from None
    require_optimizer(made, name, "train.optimizer")
    assert isinstance(made, Optimizer)
    if name == "sgd":
        begin_momenta(made)
    return made


def _can_be_fused(name: str, groups: Groups, args: Mapping[str, Any]) -> bool:
    """Return whether the kernels of a built-in optimizer can be fused, and give right numbers.

    torch 2.13's fused SGD computes wrong numbers for half types on the CPU. It also leaves momenta
    uninitialised if fp16 skips the first step, or a parameter is unused in it; `begin_momenta`
    avoids that, which dampening does not allow.
    """
    own = [group for group in groups if isinstance(group, dict)]
    parameters: list[Any] = [p for group in own for p in group["params"]] or [*groups]
    if any(options.get("foreach") or options.get("differentiable") for options in (args, *own)):
        return False
    if name == "sgd":
        has_dampening = any(options.get("dampening") for options in (args, *own))
        return not has_dampening and all(each.dtype in FULL for each in parameters)
    return all(each.is_floating_point() for each in parameters)


def begin_momenta(sgd: Optimizer) -> None:
    """Begin missing momenta of fused kernels with zero, which gives the same first step."""
    for group in sgd.param_groups:
        is_wanted = group["fused"] and group["momentum"] and not group["dampening"]
        for parameter in group["params"] if is_wanted else ():
            state = sgd.state[parameter]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(parameter)


def begin_missing_state(optimizer: Optimizer) -> None:
    """Begin with zero what torch's optimizers keep for an option that a checkpoint was without."""
    for group in optimizer.param_groups:
        wanted = {name for option, name in STATE_OF_OPTIONS.items() if group.get(option)}
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name in wanted - state.keys() if state else ():
                state[name] = torch.zeros_like(parameter)


def require_optimizer(made: object, name: str, key: str) -> None:
    """Raise TaskError unless `made` is an optimizer that steps once in a step."""
    if not isinstance(made, Optimizer):
        problem = f"{name} returned a {type(made).__name__}, not a torch.optim.Optimizer"
        raise TaskError(key, problem)
    closure = inspect.signature(type(made).step).parameters.get("closure")
    if closure and closure.default is closure.empty:
        problem = f"{type(made).__name__} evaluates the loss several times in a step, by a closure"
        raise TaskError(key, f"{problem}; choose an optimizer that steps without one")


def make_schedule(
    config: TrainConfig, lr: float, steps_per_epoch: int, total_steps: int
) -> Callable[[int], float]:
    """Return a function from a step, counted from 0, to its learning rate.

    The function has no state, so a resumed run needs none. Warm-up rises linearly to `lr`
    (Goyal et al. 2017); "cosine" falls to 0 at `total_steps` (Loshchilov & Hutter 2017); "step"
    multiplies by `step_gamma` every `step_epochs`; "wsd" is constant and falls linearly to 0 in the
    last `decay_share` of the steps (Hu et al. 2024); "onecycle" rises and falls once (Smith &
    Topin 2018), as the rates of torch's OneCycleLR by default.
    """
    if config.schedule == "onecycle":
        return partial(_one_cycle, lr, total_steps)
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    wsd_steps = max(1, round(config.decay_share * total_steps))
    decay_steps = max(1, round(config.step_epochs * steps_per_epoch))

    def rate(step: int) -> float:
        if step < warmup_steps:
            return lr * (step + 1) / warmup_steps
        if config.schedule == "cosine":
            progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
            return lr * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        if config.schedule == "step":
            return lr * config.step_gamma ** (step // decay_steps)
        if config.schedule == "wsd":
            return lr * min(1.0, max(0, total_steps - step) / wsd_steps)
        return lr

    return rate


def _one_cycle(lr: float, total_steps: int, step: int) -> float:
    """Return the rate of a rise from lr / 25 in 30 % of the steps, and a fall to almost 0."""
    start, end = lr / 25, lr / 25 / 1e4
    top = 0.3 * total_steps - 1
    if step <= top:
        return _along_cosine(start, lr, step / top)
    return _along_cosine(lr, end, min(1.0, (step - top) / (total_steps - 1 - top)))


def _along_cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * progress))


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all groups, each with its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]
