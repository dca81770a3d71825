"""The average of the weights of a run, computed from those after each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from distrain.runners.config.training_sections import TrainConfig
from distrain.runners.training.batch_statistics import norms_of, steps_to_use
from distrain.runners.training.random_state import seed_generators
from distrain.runners.training.tap import Tensors
from distrain.runners.verification.reference import MicroBatch, PlainProcess


def average_weights(
    model: nn.Module,
    train: TrainConfig,
    initial: dict[str, Any],
    later: Iterable[dict[str, Any]],
    steps: int,
    *,
    scales_losses: bool,
    delay: int = 0,
) -> Tensors:
    """Return the averaged weights and buffers, from the states at the start and after all steps.

    An equal average begins `delay` steps late. With `scales_losses` (fp16) the run computes a
    moving average in a form that can leave out a step.
    """
    statistics = _names_of_statistics(model)
    means: Tensors = initial["weights"] | initial["buffers"]
    for share, state in zip(_shares(train, steps, delay), later, strict=True):
        averaged = statistics | state["weights"].keys() - {*state["frozen"]}
        for name, value in (state["weights"] | state["buffers"]).items():
            if name not in averaged:
                means[name] = value
            elif not (scales_losses and train.ema):
                means[name] = torch.lerp(means[name], value, share)
            elif not state["skipped"]:
                means[name] = means[name] + (value - means[name]) * share
    return means


def recompute_statistics(process: PlainProcess) -> None:
    """Replace the statistics of BatchNorm by their mean over the batches that the run takes.

    `process` has the averaged weights. A module that no batch uses keeps its statistics.
    """
    before = process.state()
    norms = norms_of(process.model)
    found: list[list[tuple[float, torch.Tensor, torch.Tensor]]] = [[] for _ in norms]
    for rank in range(process.plan.world_size):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        seed_generators(process.config.train.seed + 1 + rank)
        for step, parts in enumerate(_first_steps(process), 1):
            process.begin(step)
            for part in parts:
                if part.rank == rank:
                    process.loss(part.batch)
        for norm, values in zip(norms, found, strict=True):
            calls, mean, var = norm.num_batches_tracked, norm.running_mean, norm.running_var
            if calls and mean is not None and var is not None:
                values.append((float(calls), mean.double(), var.double()))
    process.load(*before)
    with torch.no_grad():
        for norm, values in zip(norms, found, strict=True):
            if not values or norm.running_mean is None or norm.running_var is None:
                continue
            total = sum(calls for calls, _, _ in values)
            norm.running_mean.copy_(
                torch.stack([calls * mean for calls, mean, _ in values]).sum(0) / total
            )
            norm.running_var.copy_(
                torch.stack([calls * var for calls, _, var in values]).sum(0) / total
            )


def _first_steps(process: PlainProcess) -> Iterator[list[MicroBatch]]:
    train = process.config.train
    samples = process.epochs.samples
    steps = steps_to_use(samples, train.batch_size)
    sizes = [min(train.batch_size, samples)] * steps
    return process.steps([sizes], process.plan.world_size, train.accumulate)


def _shares(train: TrainConfig, steps: int, delay: int) -> Iterator[float]:
    """Yield the share of the weights of each step in the average; 1: it begins with them."""
    if train.ema:
        yield from (1 - min(train.ema, (1 + step) / (10 + step)) for step in range(1, steps + 1))
        return
    before = min(steps, delay + steps - max(1, round((train.swa_share or 0) * steps)))
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
