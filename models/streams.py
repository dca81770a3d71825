"""Training data whose samples have no numbers: iterable data sets, read as one endless sequence.

The passes over a stream follow each other, so that a batch may have samples of two of them. Each
sample of each pass has a position. Each reader goes through the whole stream, and keeps the samples
of the positions that are wanted. The samples of a step therefore depend neither on the number of
ranks nor on that of loader processes, and ranks need not agree on where the stream ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.random import mtrand
from torch.utils.data import Dataset, IterableDataset

from distrain.models.data import hash_keys, seed_cpu_generators, temporary_seed
from distrain.models.errors import TaskError

_END = object()


def is_stream(data: Any) -> bool:
    """Return whether the data are an IterableDataset, or another iterable without a length."""
    return isinstance(data, IterableDataset) or (hasattr(data, "__iter__") and not has_length(data))


def has_length(data: Any) -> bool:
    """Return whether len(data) can be computed."""
    try:
        len(data)
    except Exception:  # TypeError, NotImplementedError and what else the user's code raises
        return False
    return True


class StreamSamples(Dataset[Any]):
    """The samples of a stream by position, each reader with an iterator of its own.

    Reading is efficient in the order of the positions; a step back begins a new first pass.
    `limit` is the number of samples after which a pass ends.

    The global generators have states of their own while the stream is read. They are seeded with
    (seed, pass), so a stream that draws from them is the same for each reader. A stream with
    `decode(raw)` yields what is cheap to read; only what is kept is decoded, with generators that
    are seeded with (seed, pass, index). `set_epoch(pass)` is called before each pass, if it exists.
    """

    def __init__(self, stream: Any, limit: int | None, seed: int) -> None:
        self._stream = stream
        self._limit = limit
        self._seed = seed
        self._generators = _Generators()
        self._samples: Iterator[Any] = iter(())
        self._pass = -1
        self._index = 0  # of the next sample, in its pass
        self._position = 0  # of the next sample

    def __getitems__(self, positions: Sequence[int]) -> list[Any]:
        with self._generators:
            return [self._read(position) for position in positions]

    def _read(self, position: int) -> Any:
        if self._pass < 0 or position < self._position:
            self._position = 0
            self._begin_pass(0)
        while self._position < position:
            self._next()
        sample = self._next()
        decode = getattr(self._stream, "decode", None)
        if decode is None:
            return sample
        with temporary_seed(self._bits(self._pass, self._index)):
            return decode(sample)

    def _next(self) -> Any:
        """Return the next sample, of the next pass if this one has ended."""
        sample = next(self._samples, _END)
        if sample is _END:
            if not self._index:
                raise TaskError("task.name", self._problem())
            self._begin_pass(self._pass + 1)
            return self._next()
        # Of two normal numbers that numpy draws at once, it keeps one, which is lost wherever a
        # reader exchanges its bits. It is lost after each sample, so that all readers are equal.
        mtrand.set_bit_generator(mtrand.get_bit_generator())
        self._index += 1
        self._position += 1
        return sample

    def _begin_pass(self, number: int) -> None:
        self._pass = number
        self._index = 0
        if set_epoch := getattr(self._stream, "set_epoch", None):
            set_epoch(number)
        seed_cpu_generators(self._bits(number, 0))
        self._samples = islice(iter(self._stream), self._limit)

    def _bits(self, number: int, index: int) -> int:
        return int(hash_keys(self._seed, [(number, index)])[0])

    def _problem(self) -> str:
        kind = type(self._stream).__name__
        if not self._pass:
            return f"the training data, of class {kind}, end at once, without a sample"
        return (
            f"the training data, of class {kind}, have no samples in pass {self._pass + 1}: each "
            "call of __iter__ must start from the beginning"
        )


class _Generators:
    """States of the global generators for use in a block; those of the process are kept."""

    def __init__(self) -> None:
        self._numpy_bits = np.random.MT19937()
        self._own: tuple[Any, ...] | None = None
        self._outside: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._outside = *_states(), mtrand.get_bit_generator()
        if self._own is not None:
            _restore(self._own)
        mtrand.set_bit_generator(self._numpy_bits)

    def __exit__(self, *_: object) -> None:
        self._own = _states()
        *states, numpy_bits = self._outside
        _restore(states)
        mtrand.set_bit_generator(numpy_bits)


def _states() -> tuple[Any, ...]:
    return torch.get_rng_state(), random.getstate()


def _restore(states: Sequence[Any]) -> None:
    torch_state, python_state = states
    torch.set_rng_state(torch_state)
    random.setstate(python_state)
