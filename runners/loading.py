"""Batches of one rank: order, loader processes, and the copy to the device."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from models.task import Task
from runners.config import Data, RunConfig
from runners.order import Order
from runners.plan import Plan, share
from runners.processes import blocks_sigterm, die_with_parent, ended_by_parent_only


class Batches:
    """Training micro-batches of one rank, on its device, epoch after epoch."""

    def __init__(self, task: Task, config: RunConfig, plan: Plan, rank: int, mover: Mover) -> None:
        self._task, self._seed, self._rank, self._mover = task, config.train.seed, rank, mover
        self._keys = _Keys()
        self._generator = torch.Generator()
        workers = plan.loader_workers[rank]
        self._loader = _loader(
            task,
            task.train,
            config.data,
            workers,
            mover.device,
            batch_sampler=self._keys,
            generator=self._generator,
            persistent_workers=workers > 0,
        )

    def epoch(self, epoch: int, order: Order) -> Iterator[Any]:
        """The micro-batches that `order` gives this rank; same seed and epoch, same samples."""
        permutation = permutation_of(epoch, self._seed, order.samples)
        wants_epoch = getattr(self._task.train, "wants_epoch", False)
        self._keys.batches = (
            [(epoch, index) for index in permutation[piece]] if wants_epoch else permutation[piece]
            for piece in order.pieces(self._rank)
        )
        self._generator.manual_seed(_mix(self._seed, epoch, self._rank + 1))
        return self._mover.moved(iter(self._loader))


def permutation_of(epoch: int, seed: int, samples: int) -> list[int]:
    """The order of all samples in an epoch, the same for every number of ranks."""
    shuffle = torch.Generator().manual_seed(_mix(seed, epoch))
    order: list[int] = torch.randperm(samples, generator=shuffle).tolist()
    return order


class _Keys:
    """A batch sampler whose content is set for each epoch, so that loader processes persist."""

    batches: Iterator[list[Any]] = iter(())

    def __iter__(self) -> Iterator[list[Any]]:
        return self.batches


def evaluation_batches(
    task: Task, config: RunConfig, plan: Plan, rank: int, mover: Mover
) -> Iterator[tuple[Any, int]]:
    """This rank's consecutive, unpadded share of the evaluation set as (batch, samples).

    A rank without a sample gets one batch that counts for nothing.
    """
    sizes = share(len(task.eval), plan.world_size)  # type: ignore[arg-type]
    start = sum(sizes[:rank])
    places = range(start, start + sizes[rank])
    batch_size = config.eval.batch_size or plan.micro_batch
    pieces = [list(places[i : i + batch_size]) for i in range(0, len(places), batch_size)]
    loader = _loader(
        task,
        task.eval,
        config.data,
        plan.loader_workers[rank],
        mover.device,
        batch_sampler=pieces or [[0]],
        generator=torch.Generator().manual_seed(0),
    )
    counts = [len(piece) for piece in pieces] or [0]
    return zip(mover.moved(iter(loader)), counts, strict=True)


def _loader(
    task: Task,
    dataset: Dataset[Any],
    config: Data,
    workers: int,
    device: torch.device,
    **options: Any,
) -> DataLoader[Any]:
    if workers:
        options |= {
            "prefetch_factor": config.prefetch,
            "multiprocessing_context": config.worker_context,
            "worker_init_fn": _begin_worker,
        }
    return DataLoader(
        dataset,
        num_workers=workers,
        collate_fn=type(task).collate,
        pin_memory=config.pin_memory and device.type == "cuda",
        **options,
    )


def _begin_worker(_: int) -> None:
    die_with_parent()
    if blocks_sigterm():
        ended_by_parent_only()
    info = get_worker_info()
    assert info is not None
    random.seed(info.seed)
    np.random.seed(info.seed % 2**32)


class Mover:
    """Moves batches to the device; on CUDA one ahead, on a stream of its own."""

    def __init__(self, task: Task, device: torch.device, channels_last: bool) -> None:
        layout = torch.channels_last if channels_last else torch.preserve_format
        self.device = device
        self._move = partial(task.to, device=device, non_blocking=True, memory_format=layout)
        as_loaded = type(task).to is Task.to and task.finish is None and not channels_last
        self._has_nothing_to_do = as_loaded and device.type == "cpu"
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def moved(self, batches: Iterator[Any]) -> Iterator[Any]:
        if self._has_nothing_to_do:
            return batches
        if self._stream is None:
            return map(self._move, batches)
        return self._ahead(batches, self._stream)

    def _ahead(self, batches: Iterator[Any], stream: torch.cuda.Stream) -> Iterator[Any]:
        """Copy the next batch while the current one is computed with."""
        # What lies on the device already may still be in the making.
        stream.wait_stream(torch.cuda.current_stream(self.device))
        coming = self._copied(next(batches, None))
        while (batch := coming) is not None:
            compute = torch.cuda.current_stream(self.device)
            compute.wait_stream(stream)
            for tensor in tensors_of(batch):
                # The allocator must not reuse the memory before the compute stream is done.
                tensor.record_stream(compute)
            coming = self._copied(next(batches, None))
            yield batch

    def _copied(self, batch: Any) -> Any:
        with torch.cuda.stream(self._stream):
            return None if batch is None else self._move(batch)


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """All tensors of a batch, in nested tuples, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for item in batch.values():
            yield from tensors_of(item)
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from tensors_of(item)


def _mix(*numbers: int) -> int:
    """One seed out of several, far apart for neighbours."""
    sequence = np.random.SeedSequence(numbers)
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
