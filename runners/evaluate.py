"""Exact evaluation: every sample once, sums and counts, one all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from models.task import Task
from runners.events import Metric
from runners.precision import Precision
from runners.world import World


@torch.no_grad()
def evaluate(
    task: Task,
    model: nn.Module,
    batches: Iterator[tuple[Any, int]],
    precision: Precision,
    world: World,
) -> tuple[int, dict[str, Metric]]:
    """Samples and metrics of the whole evaluation set, the same on every rank.

    `batches` yields this rank's (batch, samples); 0 samples take part but count for nothing.
    Sums and counts travel as float64, in which integers are exact up to 2⁵³.
    """
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}
    samples = 0
    training = model.training
    model.eval()
    for batch, size in batches:
        with precision.autocast():
            measured = task.metrics(model, batch)
        samples += size
        for name, (total, count) in measured.items():
            part = total.double() if size else torch.zeros_like(total, dtype=torch.float64)
            sums[name] = sums.get(name, 0) + part
            counts[name] = counts.get(name, 0) + (count if size else 0)
    model.train(training)
    names = sorted(sums)
    numbers = torch.tensor(
        [samples, *(counts[name] for name in names)], dtype=torch.float64, device=world.device
    )
    table = torch.cat([numbers, torch.stack([sums[name].to(world.device) for name in names])])
    world.sum_(table)
    values = table.tolist()
    totals, counted = values[1 + len(names) :], values[1 : 1 + len(names)]
    metrics = {
        name: Metric.of(total, int(count))
        for name, total, count in zip(names, totals, counted, strict=True)
    }
    return int(values[0]), metrics
