"""The weights of batches are read together, and a wrong one is named with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from distrain.models.errors import TaskError
from distrain.models.task import Task
from distrain.runners.training.weights import has_weights, weights_of

LARGE = 2**53 - 1  # exact as an integer, not in fp32


class Weighted(Task):
    """A task whose batches are their weights."""

    def loss(self, model: nn.Module, batch: Any) -> Any: ...

    def weight(self, batch: Any) -> Any:
        return batch


def test_weights_of_any_kind_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    mixed = [torch.tensor(LARGE), torch.tensor([0.5]), 3]
    assert weights_of(Weighted(), mixed) == [LARGE, 0.5, 3.0]
    assert weights_of(Weighted(), []) == []
    with pytest.raises(TaskError, match=r"weight\(\) in .*test_weights.py, line \d+ must return"):
        weights_of(Weighted(), [torch.tensor(-1)])


def test_the_weights_of_all_micro_batches_are_read_from_their_device_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[Tensor] = []
    read = Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda self: reads.append(self) or read(self))
    monkeypatch.setattr(Tensor, "item", None)  # waits for the device, too
    assert weights_of(Weighted(), [torch.tensor(LARGE), torch.tensor([2])]) == [LARGE, 2]
    assert len(reads) == 1


def test_a_weight_that_is_an_attribute_counts() -> None:
    task = Weighted()
    task.weight = lambda batch: 2 * batch  # type: ignore[method-assign]
    assert has_weights(task)
    assert weights_of(task, [3]) == [6.0]
    assert not has_weights(Plain())


class Plain(Task):
    """A task without weights."""

    def loss(self, model: nn.Module, batch: Any) -> Any: ...
