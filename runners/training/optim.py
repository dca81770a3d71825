"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from distrain.runners.config.sections import TrainConfig


def make_optimizer(config: TrainConfig, parameters: list[nn.Parameter], lr: float) -> Optimizer:
    """Make SGD, Adam or AdamW with fused kernels, which CPU and CUDA have."""
    common: dict[str, Any] = {"lr": lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        sgd = torch.optim.SGD(parameters, momentum=config.momentum, **common)
        if config.momentum:
            # torch 2.13's fused kernel leaves a momentum buffer uninitialised if fp16 skips the
            # first step. Starting from zero gives the same first step.
            for parameter in parameters:
                sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, **common)


def make_schedule(
    config: TrainConfig, lr: float, steps_per_epoch: int, total_steps: int
) -> Callable[[int], float]:
    """Return a function from a step, counted from 0, to its learning rate.

    The function has no state, so a resumed run needs none. Warm-up rises linearly to `lr`
    (Goyal et al. 2017); "cosine" falls to 0 at `total_steps` (Loshchilov & Hutter 2017); "step"
    multiplies by `step_gamma` every `step_epochs`.
    """
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    decay_steps = max(1, round(config.step_epochs * steps_per_epoch))

    def rate(step: int) -> float:
        if step < warmup_steps:
            return lr * (step + 1) / warmup_steps
        if config.schedule == "cosine":
            progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
            return lr * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        if config.schedule == "step":
            return lr * config.step_gamma ** (step // decay_steps)
        return lr

    return rate


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate
