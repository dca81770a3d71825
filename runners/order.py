"""Which samples make up which step: exact for every number of ranks, without torch or data.

A step takes the next `batch_size` samples of the epoch's permutation; each rank takes its
consecutive share of them, cut into micro-batches. So the set of samples of step n does not
depend on the world size, and the last batch of an epoch is as small as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from runners.plan import share


class Share(NamedTuple):
    """Samples of a step: of all ranks, of the ranks before, of the own micro-batches (0 where
    there are too few).
    """

    total: int
    before: int
    counts: list[int]


@dataclass(frozen=True)
class Order:
    """Steps of one epoch. `offset` samples of it were used before (a resumed run)."""

    samples: int
    batch_size: int
    ranks: int
    accumulate: int = 1
    drop_last: bool = False
    offset: int = 0

    @property
    def steps(self) -> int:
        """Optimizer steps that are left in this epoch."""
        left = self.samples - self.offset
        return left // self.batch_size if self.drop_last else -(-left // self.batch_size)

    def totals(self) -> Iterator[int]:
        """Samples of each step that is left, of all ranks together."""
        left = self.samples - self.offset
        for step in range(self.steps):
            yield min(self.batch_size, left - step * self.batch_size)

    def shares(self, rank: int) -> Iterator[Share]:
        """What each step has, and how much of it is the rank's."""
        for total in self.totals():
            yield _share(total, self.ranks, rank, self.accumulate)

    def pieces(self, rank: int) -> Iterator[slice]:
        """Places in the epoch's permutation, one slice for each micro-batch of the rank.

        A micro-batch without samples gets one of the step's, to be weighted with 0, because
        every rank must take part in every reduction.
        """
        begin = self.offset
        for total, before, counts in self.shares(rank):
            start = begin + before
            for count in counts:
                yield slice(start, start + count) if count else slice(begin, begin + 1)
                start += count
            begin += total


@cache  # all steps of a run but the last of an epoch are alike
def _share(total: int, ranks: int, rank: int, accumulate: int) -> Share:
    shares = share(total, ranks)
    return Share(total, sum(shares[:rank]), share(shares[rank], accumulate))


def steps_per_epoch(samples: int, batch_size: int, drop_last: bool) -> int:
    return Order(samples, batch_size, 1, drop_last=drop_last).steps
