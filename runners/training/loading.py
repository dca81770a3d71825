"""Batches of one rank: their samples and order, and the copy to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from distrain.models.data import length
from distrain.models.streams import StreamSamples, is_stream
from distrain.models.task import Task, overrides
from distrain.runners.config.plan import Plan, share
from distrain.runners.config.schema import RunConfig
from distrain.runners.training.batch_plan import BatchPlan
from distrain.runners.training.loader_processes import end_processes, make_loader
from distrain.runners.training.loader_wait import wait_for_batches

DIRECT_BYTES = 1 << 16


class Batches:
    """The training micro-batches of one rank, on its device."""

    def __init__(
        self, task: Task, config: RunConfig, plan: Plan, rank: int, mover: BatchMover
    ) -> None:
        self._task = task
        self._timeout_s = config.data.timeout_s
        self._seed = config.train.seed
        self._rank = rank
        self._mover = mover
        self._sampler = _EpochSampler()
        self._generator = torch.Generator()
        self._is_stream = is_stream(task.train)
        self._loader = make_loader(
            task,
            open_stream(task.train, config) if self._is_stream else task.train,
            config.data,
            plan.loader_workers[rank],
            mover.device,
            batch_sampler=self._sampler,
            generator=self._generator,
        )

    def epoch(self, epoch: int, plan: BatchPlan) -> Iterator[Any]:
        """Yield this rank's micro-batches of an epoch; seed and epoch determine the samples.

        Of a stream they are those at the positions of the plan.
        """
        order: Sequence[int] = range(plan.samples)
        if not self._is_stream:
            order = epoch_permutation(epoch, self._seed, plan.samples)
        slices = partial(plan.slices, self._rank)
        if not self._is_stream and getattr(self._task.train, "wants_epoch", False):
            self._sampler.batches = lambda: (
                [(epoch, index) for index in order[piece]] for piece in slices()
            )
        else:
            self._sampler.batches = lambda: (order[piece] for piece in slices())
        self._generator.manual_seed(_mix_seed(self._seed, epoch, self._rank + 1))
        return self._mover.move(wait_for_batches(self._loader, self._timeout_s))

    def end(self) -> None:
        """End the loader processes."""
        end_processes(self._loader)


def open_stream(stream: Any, config: RunConfig) -> StreamSamples:
    """Return the samples of a stream, which is read from its beginning."""
    return StreamSamples(stream, config.data.train_limit, config.train.seed)


def epoch_permutation(epoch: int, seed: int, samples: int) -> list[int]:
    """Return the order of all samples in an epoch; it does not depend on the number of ranks."""
    shuffle = torch.Generator().manual_seed(_mix_seed(seed, epoch))
    order: list[int] = torch.randperm(samples, generator=shuffle).tolist()
    return order


class _EpochSampler:
    """A batch sampler that gets new content for each epoch, so that loader processes persist."""

    batches: Callable[[], Iterator[Sequence[Any]]]

    def __iter__(self) -> Iterator[Sequence[Any]]:
        return self.batches()


class EvaluationBatches:
    """This rank's consecutive share of the evaluation data, as (batch, samples) in each pass.

    A rank without a sample gets one batch with a count of 0. `first` are the indices of the first
    batch. Loader processes persist: a process that is forked from one with threads may hang, so
    they are not forked again for each evaluation.
    """

    def __init__(
        self, task: Task, config: RunConfig, plan: Plan, rank: int, mover: BatchMover
    ) -> None:
        assert task.eval is not None
        sizes = share(length(task.eval), plan.world_size)
        start = sum(sizes[:rank])
        indices = range(start, start + sizes[rank])
        size = config.eval.batch_size or plan.micro_batch
        pieces = [list(indices[i : i + size]) for i in range(0, len(indices), size)]
        self._timeout_s = config.data.timeout_s
        self._counts = [len(piece) for piece in pieces] or [0]
        self.first = pieces[0] if pieces else [0]
        self._mover = mover
        self._loader = make_loader(
            task,
            task.eval,
            config.data,
            plan.loader_workers[rank],
            mover.device,
            batch_sampler=pieces or [[0]],
            generator=torch.Generator().manual_seed(0),
        )

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        batches = wait_for_batches(self._loader, self._timeout_s)
        return zip(self._mover.move(batches), self._counts, strict=True)

    def end(self) -> None:
        """End the loader processes."""
        end_processes(self._loader)


class BatchMover:
    """Moves batches to the device. On CUDA it copies one batch ahead, on its own stream.

    Batches of less than `DIRECT_BYTES` are copied just before they are used, without pinned memory:
    the device has the copy in its queue long before it gets there. `pins`: whether the memory of
    the others is pinned here.
    """

    def __init__(
        self, task: Task, device: torch.device, channels_last: bool, *, pins: bool = False
    ) -> None:
        layout = torch.channels_last if channels_last else torch.preserve_format
        self.device = device
        self._options: dict[str, Any] = {
            "device": device,
            "non_blocking": True,
            "memory_format": layout,
        }
        self._move: Callable[[Any], Any] = partial(task.to, **self._options)
        is_plain = not overrides(task, "to") and task.finish is None and not channels_last
        self._has_nothing_to_do = is_plain and device.type == "cpu"
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pins = pins

    def move_now(self, task: Task, batch: Any) -> Any:
        """Return one batch on the device, finished by this copy of the task."""
        return batch if self._has_nothing_to_do else task.to(batch, **self._options)

    def move(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches on the device, finished by the task."""
        if self._has_nothing_to_do:
            return batches
        if self._stream is None:
            return map(self._move, batches)
        return self._move_to_gpu(batches, self._stream)

    def _move_to_gpu(self, batches: Iterator[Any], stream: torch.cuda.Stream) -> Iterator[Any]:
        for first in batches:
            rest = chain((first,), batches)
            if sum(tensor.nbytes for tensor in tensors_in(first)) < DIRECT_BYTES:
                yield from map(self._move, rest)
            else:
                yield from self._move_ahead(map(pin_memory, rest) if self._pins else rest, stream)

    def _move_ahead(self, batches: Iterator[Any], stream: torch.cuda.Stream) -> Iterator[Any]:
        """Copy the next batch while the device computes with the current one."""
        # Data that already lies on the device may not be complete yet.
        stream.wait_stream(torch.cuda.current_stream(self.device))
        ahead = self._copy(next(batches, None))
        while (batch := ahead) is not None:
            compute = torch.cuda.current_stream(self.device)
            compute.wait_stream(stream)
            for tensor in tensors_in(batch):
                # The allocator must not reuse the memory before the compute stream is done.
                tensor.record_stream(compute)
            ahead = self._copy(next(batches, None))
            yield batch

    def _copy(self, batch: Any) -> Any:
        with torch.cuda.stream(self._stream):
            return None if batch is None else self._move(batch)


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors of a batch, in nested tuples, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for item in batch.values():
            yield from tensors_in(item)
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from tensors_in(item)


def _mix_seed(*numbers: int) -> int:
    """Return one seed made from several numbers; neighbours give unrelated seeds."""
    sequence = np.random.SeedSequence(numbers)
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
