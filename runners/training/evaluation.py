"""Exact evaluation: every sample once, sums and counts, one all-reduce."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from distrain.models.errors import TaskError
from distrain.models.task import Task
from distrain.runners.distributed.process_group import World
from distrain.runners.protocol.events import Metric
from distrain.runners.training.precision import Precision


@torch.no_grad()
def evaluate(
    task: Task,
    model: nn.Module,
    batches: Iterable[tuple[Any, int]],
    precision: Precision,
    world: World,
) -> tuple[int, dict[str, Metric]]:
    """Return samples and metrics of the whole evaluation set, the same on every rank.

    `batches` yields this rank's (batch, samples). A batch with 0 samples counts for nothing;
    it only lets a rank without samples take part. Sums and counts are reduced as float64, in
    which integers are exact up to 2⁵³.
    """
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}
    samples = 0
    was_training = model.training
    model.eval()
    for batch, size in batches:
        with precision.autocast():
            batch_sums = task.metrics(model, batch)
        samples += size
        for name, (total, count) in batch_sums.items():
            part = total.double() if size else torch.zeros_like(total, dtype=torch.float64)
            sums[name] = sums.get(name, 0) + part
            counts[name] = counts.get(name, 0) + (count if size else 0)
    model.train(was_training)
    # One tensor for one all-reduce: the samples, then all counts, then all sums.
    names = sorted(sums)
    numbers = torch.tensor(
        [samples, *(counts[name] for name in names)], dtype=torch.float64, device=world.device
    )
    table = torch.cat([numbers, torch.stack([sums[name].to(world.device) for name in names])])
    world.all_reduce_(table)
    values = table.tolist()
    all_samples = int(values[0])
    all_counts = values[1 : 1 + len(names)]
    all_sums = values[1 + len(names) :]
    metrics = {
        name: Metric.of(total, int(count))
        for name, total, count in zip(names, all_sums, all_counts, strict=True)
    }
    return all_samples, metrics | _derive(task, metrics)


def _derive(task: Task, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return what the task derives from the means, as means of one value each."""
    means = {name: metric.value for name, metric in metrics.items()}
    known = {name: value for name, value in means.items() if value is not None}
    derived = task.derived(known) if len(known) == len(metrics) else {}
    if repeated := derived.keys() & metrics.keys():
        name = min(repeated)
        raise TaskError("task.name", f"{name} is in both metrics() and derived() of the task")
    return {name: Metric.of(float(value), 1) for name, value in derived.items()}
