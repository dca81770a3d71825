"""The way of a batch to the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from models.build import build_task
from runners.config import RunConfig
from runners.devices import Device
from runners.loading import Batches, Mover
from runners.order import Order
from runners.plan import make_plan


def test_batches_that_are_copied_ahead_are_whole_when_they_are_used(device: torch.device) -> None:
    # given batches in pinned memory, and a network slower than the copies
    task = build_task(*sections(RunConfig()))
    mover = Mover(task, device, channels_last=False)
    count, size = 40, 1 << 20

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for number in range(count):
            yield torch.full((size,), number).pin_memory(), torch.tensor([number]).pin_memory()

    sums = []
    for inputs, label in mover.moved(batches()):
        assert inputs.device == label.device == device
        torch.cuda._sleep(2_000_000)
        # The allocator is tempted to give the batch's memory to the next one.
        sums.append((inputs.sum() + label.sum(), torch.empty_like(inputs).fill_(-1))[0])
        del inputs, label
    # then each is what it was
    assert [int(total) for total in sums] == [number * size + number for number in range(count)]


def test_channels_last_is_the_layout_on_the_device(device: torch.device) -> None:
    task = build_task(*sections(RunConfig()))
    mover = Mover(task, device, channels_last=True)
    images, labels = torch.randn(8, 3, 16, 16), torch.zeros(8, dtype=torch.long)
    [(moved, _)] = mover.moved(iter([(images, labels)]))
    assert moved.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(moved.cpu(), images)


def test_synthetic_data_may_lie_on_the_device(device: torch.device) -> None:
    config = RunConfig().with_changes(
        {
            "strategy": "single",
            "launcher": "inline",
            "data.name": "synthetic",
            "data.args": {"on_device": True, "shape": [3, 8, 8], "samples": 100, "classes": 10},
        }
    )
    task = build_task(*sections(config), device=device)
    assert task.train[5].device.type == "cpu", "only the index is loaded"
    assert task.train[5].ndim == 0
    plan = make_plan(config, [Device(kind="cuda", index=0, uuid="GPU-0")])
    batches = Batches(task, config, plan, 0, Mover(task, device, channels_last=False))
    seen = list(batches.epoch(0, Order(100, 32, 1)))
    assert [inputs.shape[0] for inputs, _ in seen] == [32, 32, 32, 4]
    assert all(part.device == device for batch in seen for part in batch)


def sections(config: RunConfig) -> tuple[object, object, object]:
    return config.task, config.model, config.data
