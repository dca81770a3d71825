"""Running statistics of BatchNorm for averaged weights, computed again from training samples.

The statistics of the averaged weights are not the average of the statistics, the less the further
the averaged weights lie apart. update_bn of torch.optim.swa_utils computes them again from all
training data. A run does it before each evaluation, so it takes a bounded number of samples.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import torch
from msgspec import structs
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from distrain.models.task import give_turn
from distrain.runners.distributed.process_group import World
from distrain.runners.training.batch_mover import BatchMover
from distrain.runners.training.loading import Batches
from distrain.runners.training.module_state import unchanged_modules
from distrain.runners.training.random_state import (
    get_random_state,
    seed_generators,
    set_random_state,
)
from distrain.runners.training.state_copy import copy_task

if TYPE_CHECKING:
    from distrain.runners.training.trainer import Training

SAMPLES = 2048
"""Training samples of all ranks, rounded up to whole steps.

1,000 to 10,000 are enough for ImageNet (Wu and Johnson, "Rethinking 'Batch' in BatchNorm", 2021).
"""

REPORT_S = 1.0  # between two signs of progress


def steps_to_use(samples: int, batch_size: int) -> int:
    """Return the steps of the first epoch whose samples are used: whole ones if there are any."""
    return max(1, min(samples // batch_size, -(-SAMPLES // batch_size)))


def norms_of(model: nn.Module) -> list[_BatchNorm]:
    """Return the modules whose statistics belong to the weights: those that are in training."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats and module.training
    ]


def recompute_statistics(run: Training, model: nn.Module) -> None:
    """Replace the running statistics of a model by their mean over the first steps of epoch 0.

    All ranks must call this, and have the same result: each takes its micro-batches as in training,
    without loader processes. A module that no rank uses keeps its statistics. Neither
    parameters, random numbers nor the state of the task change; other buffers of the model may.
    """
    norms = norms_of(model)
    if not norms:
        return
    before = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms]  # type: ignore[union-attr]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the statistics are then their mean over all batches
    _forward(run, model)
    _average_over_ranks(norms, before, run.world)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _forward(run: Training, model: nn.Module) -> None:
    """Compute the loss of this rank's batches, as a training step does."""
    config, world = run.config, run.world
    task, shared = copy_task(run.task)
    task.train = copy.copy(task.train)  # a stream may count its passes
    task.on_log = None
    plan = structs.replace(run.plan, loader_workers=[0] * world.size)
    mover = BatchMover(task, world.device, config.train.channels_last)
    steps = steps_to_use(run.epochs.samples, config.train.batch_size)
    accumulate = config.train.accumulate
    with _unchanged(run, [model, run.model, *shared]):
        batches = Batches(task, config, plan, world.rank, mover)
        epoch = batches.epoch(0, run.epochs.plan(world.size, 0))
        reported = time.monotonic()
        for index, batch in enumerate(islice(epoch, steps * accumulate)):
            if run.turns:
                give_turn(task, run.turns.names[index // accumulate % len(run.turns.names)])
            with run.precision.autocast():
                task.loss(model, batch)
            # The last batch belongs to the time that the next one may take, too.
            if index + 1 < steps * accumulate and time.monotonic() - reported > REPORT_S:
                run.enter("averaging")
                reported = time.monotonic()


def _average_over_ranks(
    norms: list[_BatchNorm], before: list[tuple[torch.Tensor, torch.Tensor]], world: World
) -> None:
    """Weigh the statistics of the ranks by the number of times that they used the module."""
    parts = []
    for norm in norms:
        calls = norm.num_batches_tracked.double().reshape(1)  # type: ignore[union-attr]
        parts += [calls, norm.running_mean.double() * calls, norm.running_var.double() * calls]  # type: ignore[union-attr]
    table = torch.cat(parts)
    world.all_reduce_(table)
    sums = iter(table.split([len(part) for part in parts]))
    for norm, earlier in zip(norms, before, strict=True):
        calls = next(sums)
        found = next(sums) / calls, next(sums) / calls
        mean, var = found if calls else earlier
        norm.running_mean.copy_(mean)  # type: ignore[union-attr]
        norm.running_var.copy_(var)  # type: ignore[union-attr]


@contextmanager
def _unchanged(run: Training, modules: list[nn.Module]) -> Iterator[None]:
    """Leave random numbers, parameters, and modules but the first as they were before the block."""
    device = run.world.device
    state = get_random_state(device)
    seed_generators(run.config.train.seed + 1 + run.world.rank)
    parameters = dict.fromkeys(each for module in modules for each in module.parameters())
    values = [(each, each.detach().clone()) for each in parameters]
    with unchanged_modules(modules[1:]):
        yield
    with torch.no_grad():  # a loss may clip weights, or move those of a teacher
        for parameter, value in values:
            parameter.copy_(value)
    set_random_state(state, device)
