"""The average of the weights of a run, computed from those after each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from distrain.runners.config.training_sections import TrainConfig
from distrain.runners.training.tap import Tensors


def average_weights(
    model: nn.Module,
    train: TrainConfig,
    initial: dict[str, Any],
    later: Iterable[dict[str, Any]],
    steps: int,
    *,
    scales_losses: bool,
) -> Tensors:
    """Return the averaged weights and buffers, from the states at the start and after all steps.

    With `scales_losses` (fp16) the run computes a moving average in a form that can leave out a
    step.
    """
    statistics = _names_of_statistics(model)
    means: Tensors = initial["weights"] | initial["buffers"]
    for share, state in zip(_shares(train, steps), later, strict=True):
        averaged = statistics | state["weights"].keys() - {*state["frozen"]}
        for name, value in (state["weights"] | state["buffers"]).items():
            if name not in averaged:
                means[name] = value
            elif not (scales_losses and train.ema):
                means[name] = torch.lerp(means[name], value, share)
            elif not state["skipped"]:
                means[name] = means[name] + (value - means[name]) * share
    return means


def _shares(train: TrainConfig, steps: int) -> Iterator[float]:
    """Yield the share of the weights of each step in the average; 1: it begins with them."""
    if train.ema:
        yield from (1 - min(train.ema, (1 + step) / (10 + step)) for step in range(1, steps + 1))
        return
    before = steps - max(1, round((train.swa_share or 0) * steps))
    yield from [1.0] * before
    for step in range(steps - before):
        number, rest = divmod(step, train.swa_every_steps)
        yield 0.0 if rest else 1 / (1 + number)


def _names_of_statistics(model: nn.Module) -> set[str]:
    names: set[str] = set()
    for prefix, module in model.named_modules():
        if isinstance(module, _NormBase):
            parts = ("running_mean", "running_var")
            names |= {f"{prefix}.{part}" if prefix else part for part in parts}
    return names
