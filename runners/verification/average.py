"""The moving average of the weights of a run (`train.ema`), computed from those after each step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from distrain.runners.training.tap import Tensors


def average_weights(
    model: nn.Module,
    decay: float,
    initial: dict[str, Any],
    later: Iterable[dict[str, Any]],
    *,
    scales_losses: bool,
) -> Tensors:
    """Return the averaged weights and buffers, from the states at the start and after each step.

    With `scales_losses` (fp16) the run computes the average in a form that can leave out a step.
    """
    statistics = _names_of_statistics(model)
    means: Tensors = initial["weights"] | initial["buffers"]
    for step, state in enumerate(later, 1):
        share = 1 - min(decay, (1 + step) / (10 + step))
        averaged = statistics | state["weights"].keys() - {*state["frozen"]}
        for name, value in (state["weights"] | state["buffers"]).items():
            if name not in averaged:
                means[name] = value
            elif not scales_losses:
                means[name] = torch.lerp(means[name], value, share)
            elif not state["skipped"]:
                means[name] = means[name] + (value - means[name]) * share
    return means


def _names_of_statistics(model: nn.Module) -> set[str]:
    names: set[str] = set()
    for prefix, module in model.named_modules():
        if isinstance(module, _NormBase):
            parts = ("running_mean", "running_var")
            names |= {f"{prefix}.{part}" if prefix else part for part in parts}
    return names
