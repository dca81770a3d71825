"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from runners.config import Train


def make_optimizer(config: Train, parameters: list[nn.Parameter], lr: float) -> Optimizer:
    """SGD, Adam or AdamW over all parameters, by fused kernels (CPU and CUDA have them)."""
    common: dict[str, Any] = {"lr": lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        sgd = torch.optim.SGD(parameters, momentum=config.momentum, **common)
        if config.momentum:
            # The fused kernel leaves a momentum buffer uninitialised when fp16 skips the first
            # step (seen in torch 2.13); from zero the first step gives the same.
            for parameter in parameters:
                sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, **common)


def make_schedule(
    config: Train, lr: float, steps_per_epoch: int, total_steps: int
) -> Callable[[int], float]:
    """The rate of step n, counted from 0; a pure function, so a resumed run needs no state.

    Warm-up rises linearly to `lr` (Goyal et al. 2017); cosine falls to 0 at `total_steps`
    (Loshchilov & Hutter 2017); step multiplies by `step_gamma` every `step_epochs`.
    """
    warmup = round(config.warmup_epochs * steps_per_epoch)
    fall_every = max(1, round(config.step_epochs * steps_per_epoch))

    def rate(step: int) -> float:
        if step < warmup:
            return lr * (step + 1) / warmup
        if config.schedule == "cosine":
            done = (step - warmup) / max(1, total_steps - warmup)
            return lr * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        if config.schedule == "step":
            return lr * config.step_gamma ** (step // fall_every)
        return lr

    return rate


def set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
