"""Which samples make up which step, exactly, for any number of ranks. Needs no torch and no data.

A step takes the next `batch_size` samples of the epoch's permutation, which is drawn in
`loading.epoch_permutation`. Each rank takes a consecutive share of them and cuts it into
micro-batches. The samples of step n therefore do not depend on the number of ranks, and the last
batch of an epoch has the samples that remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from distrain.runners.config.plan import share


class StepShare(NamedTuple):
    """One rank's share of a step, in samples.

    `total`: samples of the step, of all ranks.
    `before`: samples of the ranks before this one.
    `counts`: samples of each micro-batch of this rank; 0 where there are too few.
    """

    total: int
    before: int
    counts: list[int]


@dataclass(frozen=True)
class BatchPlan:
    """The steps of one epoch; `offset` samples of it were used before (by a resumed run)."""

    samples: int
    batch_size: int
    ranks: int
    accumulate: int = 1
    drop_last: bool = False
    offset: int = 0

    @property
    def steps(self) -> int:
        """Optimizer steps that remain in this epoch."""
        remaining = self.samples - self.offset
        if self.drop_last:
            return remaining // self.batch_size
        return -(-remaining // self.batch_size)

    def totals(self) -> Iterator[int]:
        """Yield the samples of each remaining step, of all ranks together."""
        remaining = self.samples - self.offset
        for step in range(self.steps):
            yield min(self.batch_size, remaining - step * self.batch_size)

    def shares(self, rank: int) -> Iterator[StepShare]:
        """Yield this rank's share of each remaining step."""
        for total in self.totals():
            yield _step_share(total, self.ranks, rank, self.accumulate)

    def slices(self, rank: int) -> Iterator[slice]:
        """Yield a slice of the epoch's permutation for each micro-batch of this rank.

        A micro-batch without samples gets one sample of its step, to be weighted with 0, because
        every rank must take part in every reduction.
        """
        step_start = self.offset
        for total, before, counts in self.shares(rank):
            start = step_start + before
            for count in counts:
                if count:
                    yield slice(start, start + count)
                else:
                    yield slice(step_start, step_start + 1)
                start += count
            step_start += total


@cache  # all steps of a run are alike, except for the last one of an epoch
def _step_share(total: int, ranks: int, rank: int, accumulate: int) -> StepShare:
    shares = share(total, ranks)
    return StepShare(total, sum(shares[:rank]), share(shares[rank], accumulate))


def steps_per_epoch(samples: int, batch_size: int, drop_last: bool) -> int:
    """Return the optimizer steps of a whole epoch."""
    return BatchPlan(samples, batch_size, 1, drop_last=drop_last).steps
