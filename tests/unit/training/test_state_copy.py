"""A copy of a task has state of its own, and does not copy large data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from distrain.models.task import Task
from distrain.runners.training.state_copy import MAX_BYTES, MAX_ENTRIES, copy_task

SIZE = 1 << 20


class _Listed(Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.samples = [torch.zeros(SIZE, dtype=torch.uint8) for _ in range(count)]
        self.paths = [("a.png", 0)] * (MAX_ENTRIES + 1)
        self.opened = [0]


class _Counting(Task):
    def __init__(self, train: Dataset[Any], eval_data: Dataset[Any]) -> None:
        self.train, self.eval = train, eval_data
        self.noise = torch.Generator()
        self.counts = {"seen": torch.zeros(())}

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise NotImplementedError


def test_a_copy_shares_training_data_and_what_exceeds_one_budget_for_all() -> None:
    task = _Counting(_Listed(1), _Listed(MAX_BYTES // SIZE + 5))
    twin: Any = copy_task(task)[0]
    assert twin.train is task.train
    assert twin.eval is not task.eval
    assert twin.eval.paths is task.eval.paths
    pairs = zip(twin.eval.samples, task.eval.samples, strict=True)
    copied = sum(copy is not original for copy, original in pairs)
    assert 0 < copied * SIZE <= MAX_BYTES
    assert twin.noise is not task.noise
    assert twin.counts["seen"] is not task.counts["seen"]
    assert twin.eval.opened is not task.eval.opened


def test_state_that_is_in_training_and_evaluation_data_is_not_changed_through_a_copy() -> None:
    data = _Listed(1)
    twin: Any = copy_task(_Counting(data, data))[0]
    twin.eval.opened[0] += 1
    assert data.opened == [0]
