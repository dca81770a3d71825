"""Moving batches to the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import torch

from distrain.models.build import build_task
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.system.devices import Device
from distrain.runners.training.batch_mover import BatchMover
from distrain.runners.training.batch_plan import BatchPlan
from distrain.runners.training.loading import Batches


def test_batches_that_are_copied_ahead_are_complete_when_they_are_used(
    device: torch.device,
) -> None:
    # given batches in pinned memory, and a network slower than the copies
    task = build_task(*sections(RunConfig()))
    mover = BatchMover(task, device, channels_last=False)
    count, size = 40, 1 << 20

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for number in range(count):
            yield torch.full((size,), number).pin_memory(), torch.tensor([number]).pin_memory()

    sums = []
    for inputs, label in mover.move(batches()):
        assert inputs.device == label.device == device
        torch.cuda._sleep(2_000_000)
        # Tempt the allocator to reuse the batch's memory for the next one.
        sums.append((inputs.sum() + label.sum(), torch.empty_like(inputs).fill_(-1))[0])
        del inputs, label
    # then each has its own values
    assert [int(total) for total in sums] == [number * size + number for number in range(count)]


def test_batches_in_an_object_of_the_user_keep_their_values(device: torch.device) -> None:
    # given batches whose memory is free as soon as the host has queued their step
    task = build_task(*sections(RunConfig()))
    task.finish = lambda batch: SimpleNamespace(inputs=batch[0])
    mover = BatchMover(task, device, channels_last=False)
    count, size = 40, 1 << 20
    batches = (
        (torch.full((size,), number).pin_memory(), torch.tensor([number]))
        for number in range(count)
    )
    sums = []
    for batch in mover.move(batches):
        torch.cuda._sleep(2_000_000)
        sums.append(batch.inputs.sum())
        del batch
    assert [int(total) for total in sums] == [number * size for number in range(count)]


def test_data_on_the_device_need_no_copy(device: torch.device) -> None:
    task = build_task(*sections(RunConfig()))
    mover = BatchMover(task, device, channels_last=False, pins=True)
    inputs, labels = torch.randn(64, 1 << 12, device=device), torch.zeros(64, device=device)
    [(moved, _)] = mover.move(iter([(inputs, labels)]))
    assert moved is inputs


def test_channels_last_is_the_layout_on_the_device(device: torch.device) -> None:
    task = build_task(*sections(RunConfig()))
    mover = BatchMover(task, device, channels_last=True)
    images = torch.randn(8, 3, 16, 16)
    labels = torch.zeros(8, dtype=torch.long)
    [(moved, _)] = mover.move(iter([(images, labels)]))
    assert moved.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(moved.cpu(), images)


def test_synthetic_data_can_be_kept_on_the_device(device: torch.device) -> None:
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
    plan = plan_here(config, [Device(kind="cuda", index=0, uuid="GPU-0")])
    batches = Batches(task, config, plan, 0, BatchMover(task, device, channels_last=False))
    loaded = list(batches.epoch(0, BatchPlan(100, 32, 1)))
    assert [inputs.shape[0] for inputs, _ in loaded] == [32, 32, 32, 4]
    assert all(part.device == device for batch in loaded for part in batch)


def sections(config: RunConfig) -> tuple[object, object, object]:
    return config.task, config.model, config.data
