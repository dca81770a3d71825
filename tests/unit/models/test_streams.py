"""A stream by position: passes, random numbers, decoding and mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from distrain.models.data import temporary_seed
from distrain.models.errors import TaskError
from distrain.models.streams import StreamSamples, is_stream

SAMPLES = 10


class Counting(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(SAMPLES))


class Drawing(IterableDataset[Any]):
    """Samples in an order and with noise of the global generators."""

    def __iter__(self) -> Iterator[Any]:
        order = list(range(SAMPLES))
        random.shuffle(order)
        for index in order:
            yield index, torch.rand(()).item(), float(np.random.normal())

    def decode(self, sample: Any) -> Any:
        return *sample, float(np.random.normal())


class Decoding(IterableDataset[int]):
    def __init__(self) -> None:
        self.decoded: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return iter(range(SAMPLES))

    def decode(self, raw: int) -> tuple[int, float]:
        self.decoded.append(raw)
        return raw, random.random()


class WithEpochs(IterableDataset[tuple[int, int]]):
    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter([(self.epoch, index) for index in range(3)])


class NoLength:
    """No IterableDataset, and of no length, as data sets of other libraries."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(SAMPLES))

    def __len__(self) -> int:
        raise NotImplementedError


def read(stream: Any, *batches: Any, limit: int | None = None, seed: int = 0) -> list[Any]:
    samples = StreamSamples(stream, limit, seed)
    return [sample for batch in batches for sample in samples.__getitems__(batch)]


def test_what_is_iterated_is_a_stream() -> None:
    assert is_stream(Counting())
    assert is_stream(NoLength())
    assert not is_stream([1, 2])


def test_passes_follow_each_other() -> None:
    assert read(Counting(), range(25)) == [*range(10), *range(10), *range(5)]
    assert read(NoLength(), [3], [12]) == [3, 2]


def test_a_limit_ends_each_pass() -> None:
    assert read(Counting(), range(7), limit=3) == [0, 1, 2, 0, 1, 2, 0]


def test_a_step_back_reads_from_the_beginning() -> None:
    assert read(Counting(), [15], [2, 3], [3]) == [5, 2, 3, 3]


def test_each_pass_is_announced() -> None:
    assert read(WithEpochs(), range(5)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


@given(st.sets(st.integers(0, 35), min_size=1), st.integers(1, 5), st.integers(0, 3))
def test_a_sample_does_not_depend_on_what_else_is_read(
    positions: set[int], size: int, seed: int
) -> None:
    whole = read(Drawing(), range(36), seed=seed)
    wanted = sorted(positions)
    batches = [wanted[start : start + size] for start in range(0, len(wanted), size)]
    samples = StreamSamples(Drawing(), None, seed)
    for batch in batches:
        random.random()  # as the training draws between batches
        assert samples.__getitems__(batch) == [whole[position] for position in batch]


def test_passes_and_seeds_have_other_random_numbers() -> None:
    first, second = (read(Drawing(), range(n, n + 10)) for n in (0, 10))
    assert sorted(index for index, *_ in second) == list(range(10))
    assert first != second
    assert first != read(Drawing(), range(10), seed=1)


def test_reading_leaves_the_generators_of_the_process_as_they_were() -> None:
    for block in (nullcontext(), temporary_seed(3)):
        with block:
            before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
            read(Drawing(), range(15))
            assert torch.equal(torch.get_rng_state(), before[0])
            assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_only_what_is_kept_is_decoded_with_numbers_of_its_own() -> None:
    stream = Decoding()
    kept = read(stream, [4, 14], [17])
    assert stream.decoded == [4, 4, 7]
    assert kept[0] != kept[1]
    assert read(Decoding(), range(20))[4] == kept[0]


def test_a_stream_without_samples_is_one_sentence() -> None:
    with pytest.raises(TaskError, match="of class list_iterator, end at once, without a sample"):
        read(iter([]), [0])
    with pytest.raises(TaskError, match="have no samples in pass 2: each call of __iter__ must"):
        read(iter([1, 2]), range(3))
