"""Which samples make up which step: exact for every number of ranks, without torch or data.

A step takes the next `batch_size` samples of the epoch's permutation; each rank takes its
consecutive share of them, cut into micro-batches. So the set of samples of step n does not
depend on the world size, and the last batch of an epoch is as small as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from runners.plan import share


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

    def total(self, step: int) -> int:
        """Samples of all ranks in the step, counted from 0 at `offset`."""
        return min(self.batch_size, self.samples - self.offset - step * self.batch_size)

    def counts(self, step: int, rank: int) -> list[int]:
        """Samples of the rank's micro-batches in the step; 0 where there are too few."""
        return _share(self.total(step), self.ranks, rank, self.accumulate)[1]

    def pieces(self, rank: int) -> Iterator[slice]:
        """Places in the epoch's permutation, one slice for each micro-batch of the rank.

        A micro-batch without samples gets one of the step's, to be weighted with 0, because
        every rank must take part in every reduction.
        """
        for step in range(self.steps):
            begin = self.offset + step * self.batch_size
            before, counts = _share(self.total(step), self.ranks, rank, self.accumulate)
            start = begin + before
            for count in counts:
                yield slice(start, start + count) if count else slice(begin, begin + 1)
                start += count


@cache  # all steps of a run but the last of an epoch are alike
def _share(total: int, ranks: int, rank: int, accumulate: int) -> tuple[int, list[int]]:
    """Samples of a step that go to lower ranks, and those of this rank's micro-batches."""
    shares = share(total, ranks)
    return sum(shares[:rank]), share(shares[rank], accumulate)


def steps_per_epoch(samples: int, batch_size: int, drop_last: bool) -> int:
    return Order(samples, batch_size, 1, drop_last=drop_last).steps
