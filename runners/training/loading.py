"""Batches of one rank: their order, the loader processes, and the copy to the device."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from distrain.models.data import length
from distrain.models.task import Task
from distrain.runners.config.plan import Plan, share
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.sections import DataConfig
from distrain.runners.system.processes import (
    accept_sigterm_from_parent,
    blocks_sigterm,
    die_with_parent,
)
from distrain.runners.training.batch_plan import BatchPlan

CHECK_S = 5.0  # between two looks for loader processes that have ended


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
        self._loader = _make_loader(
            task,
            task.train,
            config.data,
            plan.loader_workers[rank],
            mover.device,
            batch_sampler=self._sampler,
            generator=self._generator,
        )

    def epoch(self, epoch: int, plan: BatchPlan) -> Iterator[Any]:
        """Yield this rank's micro-batches of an epoch; seed and epoch determine the samples."""
        permutation = epoch_permutation(epoch, self._seed, plan.samples)
        slices = (permutation[piece] for piece in plan.slices(self._rank))
        if getattr(self._task.train, "wants_epoch", False):
            self._sampler.batches = ([(epoch, index) for index in piece] for piece in slices)
        else:
            self._sampler.batches = slices
        self._generator.manual_seed(_mix_seed(self._seed, epoch, self._rank + 1))
        return self._mover.move(_wait_for_batches(self._loader, self._timeout_s))


def epoch_permutation(epoch: int, seed: int, samples: int) -> list[int]:
    """Return the order of all samples in an epoch; it does not depend on the number of ranks."""
    shuffle = torch.Generator().manual_seed(_mix_seed(seed, epoch))
    order: list[int] = torch.randperm(samples, generator=shuffle).tolist()
    return order


class _EpochSampler:
    """A batch sampler that gets new content for each epoch, so that loader processes persist."""

    batches: Iterator[list[Any]] = iter(())

    def __iter__(self) -> Iterator[list[Any]]:
        return self.batches


class EvaluationBatches:
    """This rank's consecutive share of the evaluation data, as (batch, samples) in each pass.

    `first` are the indices of the first batch.

    A rank without a sample gets one batch with a count of 0. Loader processes persist: a process
    that forks while it has threads may hang, so it does not fork again for each evaluation.
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
        self._loader = _make_loader(
            task,
            task.eval,
            config.data,
            plan.loader_workers[rank],
            mover.device,
            batch_sampler=pieces or [[0]],
            generator=torch.Generator().manual_seed(0),
        )

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        batches = _wait_for_batches(self._loader, self._timeout_s)
        return zip(self._mover.move(batches), self._counts, strict=True)


def _make_loader(
    task: Task,
    dataset: Dataset[Any],
    config: DataConfig,
    workers: int,
    device: torch.device,
    **options: Any,
) -> DataLoader[Any]:
    if workers:
        options |= {
            "persistent_workers": True,
            "prefetch_factor": config.prefetch,
            "timeout": config.timeout_s,
            "multiprocessing_context": config.worker_context,
            "worker_init_fn": _init_loader_process,
        }
    return DataLoader(
        dataset,
        num_workers=workers,
        collate_fn=type(task).collate,
        pin_memory=config.pin_memory and device.type == "cuda",
        **options,
    )


def _wait_for_batches(loader: DataLoader[Any], timeout_s: float) -> Iterator[Any]:
    """Yield the batches of a loader, each within so many seconds. Raises RuntimeError."""
    _check_idle_processes(loader)
    batches = iter(loader)
    if not loader.num_workers:
        return batches
    return _retry(batches, timeout_s)


def _check_idle_processes(loader: DataLoader[Any]) -> None:
    """Raise RuntimeError if a loader process has ended since the last pass.

    torch would wait for it until its own timeout is over. It has no public way to its processes.
    """
    for process in getattr(loader._iterator, "_workers", ()):
        if not process.is_alive():
            raise RuntimeError(
                f"a loader process (pid {process.pid}) has ended with exit code "
                f"{process.exitcode} after a pass over its data"
            )


def _retry(batches: Any, timeout_s: float) -> Iterator[Any]:
    """Look for loader processes that have ended while none of them sends a batch.

    torch looks for them when its own timeout is over, which is therefore shorter here. At the start
    of an epoch it waits for all of them, and cannot try that again: there the timeout is the whole.
    """
    with _Guard(batches._workers, timeout_s) as guard:
        while True:
            guard.deadline = time.monotonic() + timeout_s
            while True:
                batches._timeout = min(timeout_s, CHECK_S)  # there is no public way
                try:
                    batch = next(batches)
                    break
                except StopIteration:
                    return
                except (RuntimeError, OSError, EOFError) as error:
                    is_late = time.monotonic() >= guard.deadline
                    if not is_late and "DataLoader timed out" in str(error):
                        continue
                    if not (is_late or guard.has_ended_loaders):
                        raise
                    text = f"no batch came from the loader processes within {timeout_s:g} s"
                    raise RuntimeError(f"{text} (data.timeout_s)") from None
                finally:
                    batches._timeout = timeout_s
            guard.deadline = math.inf
            yield batch


class _Guard(threading.Thread):
    """Ends the loader processes some time after a deadline, while their rank waits for a batch.

    torch waits without a limit for the tensors of a batch that a process has announced: they come
    through a socket of that process, which may hang or be suspended.
    """

    def __init__(self, loaders: Sequence[BaseProcess], timeout_s: float) -> None:
        super().__init__(name="loaders", daemon=True)
        self.deadline = math.inf
        self.has_ended_loaders = False
        self._loaders = loaders
        self._check_s = min(timeout_s, CHECK_S)
        self._has_passed = threading.Event()

    def run(self) -> None:
        while not self._has_passed.wait(self._check_s):
            if time.monotonic() > self.deadline + self._check_s:  # torch itself had the time
                self.has_ended_loaders = True
                for loader in self._loaders:
                    loader.kill()
                return

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_passed.set()


def _init_loader_process(_: int) -> None:
    die_with_parent()
    rank = multiprocessing.parent_process()
    if rank is not None and not rank.is_alive():  # killed while this process was starting
        os._exit(1)
    if rank is not None and rank.pid != os.getppid():
        # The parent is a fork server, which itself waits for the end of this process.
        threading.Thread(target=_exit_with, args=(rank,), name="rank", daemon=True).start()
    if blocks_sigterm():
        accept_sigterm_from_parent()
    info = get_worker_info()
    assert info is not None
    random.seed(info.seed)
    np.random.seed(info.seed % 2**32)


def _exit_with(rank: BaseProcess) -> None:
    rank.join()
    os._exit(1)


class BatchMover:
    """Moves batches to the device. On CUDA it copies one batch ahead, on its own stream."""

    def __init__(self, task: Task, device: torch.device, channels_last: bool) -> None:
        layout = torch.channels_last if channels_last else torch.preserve_format
        self.device = device
        self._options: dict[str, Any] = {
            "device": device,
            "non_blocking": True,
            "memory_format": layout,
        }
        self._move: Callable[[Any], Any] = partial(task.to, **self._options)
        is_plain = type(task).to is Task.to and task.finish is None and not channels_last
        self._has_nothing_to_do = is_plain and device.type == "cpu"
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def move_now(self, task: Task, batch: Any) -> Any:
        """Return one batch on the device, finished by this copy of the task."""
        return batch if self._has_nothing_to_do else task.to(batch, **self._options)

    def move(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches on the device, finished by the task."""
        if self._has_nothing_to_do:
            return batches
        if self._stream is None:
            return map(self._move, batches)
        return self._move_ahead(batches, self._stream)

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
