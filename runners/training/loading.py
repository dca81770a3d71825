"""The batches of one rank: their samples and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from distrain.models.data import length
from distrain.models.streams import StreamSamples, is_stream
from distrain.models.task import Task
from distrain.runners.config.plan import Plan, share
from distrain.runners.config.schema import RunConfig
from distrain.runners.training.batch_mover import BatchMover
from distrain.runners.training.batch_plan import BatchPlan
from distrain.runners.training.loader_processes import end_processes, make_loader
from distrain.runners.training.loader_wait import wait_for_batches


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


def _mix_seed(*numbers: int) -> int:
    """Return one seed made from several numbers; neighbours give unrelated seeds."""
    sequence = np.random.SeedSequence(numbers)
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
