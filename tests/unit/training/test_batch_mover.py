"""Batches on their way to the device; `tests/gpu/test_loading.py` has those that reach a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from distrain.models.task import Task
from distrain.runners.training.batch_mover import BatchMover, tensors_in


class Plain(Task):
    model = nn.Identity()
    train = eval = (1, 2)  # type: ignore[assignment]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise AssertionError("the batches of this task are only moved")


@pytest.mark.parametrize(("size", "is_ahead"), [(1_000, False), (20_000, True)])
def test_on_gpus_only_large_batches_are_copied_ahead(
    size: int, is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover = BatchMover(Plain(), torch.device("cpu"), channels_last=False)
    ahead: list[bool] = []

    def move_ahead(batches: Iterator[Any], stream: Any) -> Iterator[Any]:
        ahead.append(True)
        return batches

    monkeypatch.setattr(mover, "_move_ahead", move_ahead)
    batches = [torch.full((size,), number, dtype=torch.float32) for number in range(3)]
    stream: Any = None
    moved = list(mover._move_to_gpu(iter(batches), stream))
    assert [int(batch[0]) for batch in moved] == [0, 1, 2]
    assert bool(ahead) is is_ahead


def test_batches_of_data_on_the_device_are_neither_copied_ahead_nor_pinned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = torch.device("meta")  # in place of a GPU
    mover = BatchMover(Plain(), device, channels_last=False, pins=True)
    monkeypatch.setattr(mover, "_move_ahead", None)
    stream: Any = None
    batches = [torch.empty(20_000, device=device) for _ in range(3)]
    moved = list(mover._move_to_gpu(iter(batches), stream))
    assert all(found is batch for found, batch in zip(moved, batches, strict=True))


def test_a_copy_waits_for_the_steps_that_may_still_read_the_memory_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given batches whose tensors only an object of the user's class has
    class Finished(Plain):
        finish = staticmethod(lambda batch: SimpleNamespace(inputs=batch))

    order: list[Any] = []
    compute: Any = SimpleNamespace(wait_stream=lambda other: order.append("step waits"))
    stream: Any = SimpleNamespace(wait_stream=lambda other: order.append("copy waits"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: compute)
    mover = BatchMover(Finished(), torch.device("cpu"), channels_last=False)
    batches = iter([torch.tensor(0), torch.tensor(1)])
    order.extend(int(batch.inputs) for batch in mover._move_ahead(batches, stream))
    assert order == ["copy waits", "step waits", "copy waits", 0, "step waits", "copy waits", 1]


def test_what_stays_on_the_cpu_of_a_batch_that_is_copied_ahead_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a stream that orders nothing, and lengths that torch keeps on the CPU
    stream: Any = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    mover = BatchMover(Plain(), torch.device("cpu"), channels_last=False)
    batches = [pack_sequence([torch.ones(3), torch.ones(2)]) for _ in range(2)]
    moved = list(mover._move_ahead(iter(batches), stream))
    assert [batch.batch_sizes.tolist() for batch in moved] == [[2, 2, 1]] * 2


def test_tensors_are_found_in_nested_containers() -> None:
    a, b, c = (torch.tensor(number) for number in range(3))
    assert list(tensors_in({"x": [a, (b, "text")], "y": {"z": c, "n": 1}})) == [a, b, c]
