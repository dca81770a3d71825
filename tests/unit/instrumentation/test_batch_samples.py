"""Given a batch of any structure, how many samples it has."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, SequentialSampler

from distrain.runners.instrumentation.batch_samples import count_samples, counting

IMAGE = torch.zeros(3, 8, 8)
BOXES = {"boxes": torch.zeros(5, 4)}


class NestedTensor:
    @property
    def shape(self) -> None:
        raise RuntimeError  # as that of torch, which warns when it is made


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.zeros(3, 2), 3),
        ((torch.zeros(4, 2), torch.zeros(4)), 4),
        ({"ids": torch.zeros(5, 2), "mask": None}, 5),
        (["a text", torch.zeros(6)], 6),
        (torch.tensor(1.0), None),
        (["only", "texts"], None),
        (7, None),
        (NestedTensor(), None),
        ((NestedTensor(), torch.zeros(6)), 6),
        ([{"ids": torch.zeros(5, 2)}, torch.zeros(5)], 5),
        ([[torch.zeros(5, 2), torch.zeros(5, 3)], torch.zeros(5)], 5),
        ({"inputs": {"ids": torch.zeros(5, 2)}}, 5),
        (((IMAGE, IMAGE), (BOXES, BOXES)), None),  # of a detection: a tuple for each part
        ([BOXES, BOXES], None),  # a list of samples
        ([SimpleNamespace(shape=lambda: 3), torch.zeros(6)], 6),
    ],
)
def test_the_samples_of_a_batch_are_those_of_its_first_tensor(batch: Any, samples: Any) -> None:
    assert count_samples(batch) == samples


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([IMAGE] * 10)


def as_list(samples: list[Any]) -> list[Any]:
    return samples


class Filter(Sampler[int]):
    """Draws less than its length."""

    def __init__(self, data: Sized) -> None: ...

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


class Unsized(SequentialSampler):
    def __len__(self) -> int:
        raise RuntimeError("unknown until it was read")


# Padded sequences begin with their time, which may be the number of samples in the first batch.
SEQUENCES = [torch.zeros(time, 1) for time in (4, 3, 2, 1, 7, 6, 5, 6, 9, 9)]


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        (DataLoader([IMAGE] * 10, 4), [4, 4, 2]),
        (DataLoader(SEQUENCES, 4, collate_fn=pad_sequence), [4, 4, 2]),
        (DataLoader([IMAGE] * 10, 4, sampler=Filter([])), [4, None]),
        (DataLoader([IMAGE] * 10, 4, sampler=Unsized([IMAGE] * 10)), [4, 4, 2]),
        (DataLoader([IMAGE] * 10, 4, drop_last=True), [4, 4]),
        (DataLoader([IMAGE] * 2, 4), [2]),
        (DataLoader([IMAGE] * 10, 4, collate_fn=as_list), [4, 4, 2]),  # 3 is the channels
        (
            DataLoader(
                [(IMAGE, BOXES)] * 10, 4, collate_fn=lambda each: tuple(zip(*each, strict=True))
            ),
            [4, 4, 2],
        ),
        (DataLoader(["text"] * 10, 4), [4, 4, 2]),
        (DataLoader([IMAGE] * 10, batch_size=None), [3] * 10),  # its items may be batches
        (
            DataLoader(
                [IMAGE] * 10,
                collate_fn=as_list,
                batch_sampler=BatchSampler(SequentialSampler(range(10)), 4, drop_last=False),
            ),
            [4, 4, 2],
        ),
        (DataLoader(Stream(), 4), [4, 4, 2]),
        (DataLoader(Stream(), 4, collate_fn=as_list), [None] * 3),
    ],
)
def test_the_sampler_of_a_loader_tells_whether_dimension_0_counts_samples(
    loader: DataLoader[Any], samples: list[int | None]
) -> None:
    batches = iter(loader)
    first = next(batches)
    count = counting(batches, first)
    assert [count(first), *map(count, batches)] == samples
