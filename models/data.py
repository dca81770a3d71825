"""How samples are held and handed out; which ones there are is `datasets.py`'s business.

A data set that gives whole batches (`__getitems__`) does without per-sample Python. One
with `wants_epoch` is asked by (epoch, index) instead of index, so that augmentation depends
on these and the seed alone: never on the rank, the loader process or the order.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset, default_collate

Key = tuple[int, int]
"""(epoch, index)"""


@dataclass(frozen=True)
class Data:
    """What a data factory gives: two map-style data sets, and what a network must know.

    `classes` and `shape` (of one input, e.g. channels × height × width) are None where they
    have no meaning. `finish` completes a batch once it is on the device.
    """

    train: Dataset[Any]
    eval: Dataset[Any]
    classes: int | None = None
    shape: tuple[int, ...] | None = None
    finish: Callable[[Any], Any] | None = None


class TensorData(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and labels held as two tensors; a batch is one gather.

    With `mean` and `std` (per channel, in the units of `inputs`) inputs are kept as they are,
    say as bytes, and batches are (x - mean) / std in float32.
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        if len(inputs) != len(labels):
            raise ValueError(f"{len(inputs)} inputs, but {len(labels)} labels")
        self.inputs, self.labels = inputs, labels
        self.mean = None if mean is None else torch.tensor(mean).view(-1, 1, 1)
        self.std = None if std is None else torch.tensor(std).view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, key: Any) -> tuple[Tensor, Tensor]:
        inputs, labels = self.__getitems__([key])
        return inputs[0], labels[0]

    def __getitems__(self, keys: Sequence[Any]) -> tuple[Tensor, Tensor]:
        indices = torch.as_tensor(keys)
        return self.normalised(self.inputs[indices]), self.labels[indices]

    def normalised(self, inputs: Tensor) -> Tensor:
        if self.mean is None or self.std is None:
            return inputs
        return inputs.to(torch.float32).sub_(self.mean).div_(self.std)


class CropFlipData(TensorData):
    """Images, each shifted by up to `pad` pixels and mirrored half the time, batch-wise.

    The usual augmentation of CIFAR-10 (He et al. 2015, section 4.2): black is shifted in.
    Asked by (epoch, index).
    """

    wants_epoch = True

    def __init__(self, *held: Any, pad: int, seed: int) -> None:
        super().__init__(*held)
        self.pad, self.seed = pad, seed

    def __getitems__(self, keys: Sequence[Key]) -> tuple[Tensor, Tensor]:
        indices = torch.tensor([index for _, index in keys])
        draws = torch.tensor([self._draw(epoch, index) for epoch, index in keys])
        images = self._shifted(self.inputs[indices], *draws.unbind(1))
        return self.normalised(images), self.labels[indices]

    def _draw(self, epoch: int, index: int) -> tuple[int, int, int]:
        number, places = mixed(self.seed, epoch, index), 2 * self.pad + 1
        return number % places, (number >> 20) % places, (number >> 40) % 2

    def _shifted(self, images: Tensor, top: Tensor, left: Tensor, mirror: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        rows = top[:, None] + torch.arange(height)
        columns = left[:, None] + torch.arange(width)
        columns = torch.where(mirror[:, None] == 1, columns.flip(1), columns)
        sample = torch.arange(len(images))[:, None, None]
        padded = F.pad(images, [self.pad] * 4)
        chosen = padded[sample, :, rows[:, :, None], columns[:, None, :]]
        return chosen.permute(0, 3, 1, 2).contiguous()


class Augmented(Dataset[Any]):
    """A data set of (raw, label) pairs with a random `transform` of the raw, asked by key.

    The transform may draw from torch, random and numpy.random: all three start anew from
    (seed, epoch, index) and go back to where they were.
    """

    wants_epoch = True

    def __init__(self, dataset: Dataset[Any], transform: Callable[[Any], Any], seed: int) -> None:
        self.dataset, self.transform, self.seed = dataset, transform, seed

    def __len__(self) -> int:
        return length(self.dataset)

    def __getitem__(self, key: Key) -> tuple[Any, Any]:
        epoch, index = key
        raw, label = self.dataset[index]
        with seeded(mixed(self.seed, epoch, index)):
            return self.transform(raw), label


class First(Dataset[Any]):
    """The first `count` samples; whole batches and `wants_epoch` as in the whole set."""

    def __init__(self, dataset: Dataset[Any], count: int) -> None:
        self.dataset, self.count = dataset, count
        self.wants_epoch = bool(getattr(dataset, "wants_epoch", False))
        # The loader takes the fast way where this attribute exists, so it must not exist here
        # unless it does there.
        if hasattr(dataset, "__getitems__"):
            self.__getitems__ = dataset.__getitems__

    def __len__(self) -> int:
        return min(self.count, length(self.dataset))

    def __getitem__(self, key: Any) -> Any:
        index = key[1] if isinstance(key, tuple) else key
        if index >= len(self):
            raise IndexError(index)
        return self.dataset[key]


def limited(dataset: Dataset[Any], limit: int | None) -> Dataset[Any]:
    """`dataset`, or its first `limit` samples."""
    return dataset if limit is None else First(dataset, limit)


def length(dataset: Dataset[Any]) -> int:
    """len(), which torch's type of a map-style data set does not promise."""
    count: int = dataset.__len__()  # type: ignore[attr-defined]
    return count


def collate(samples: Any) -> Any:
    """Join a list of samples as torch does; what is a whole batch already stays as it is."""
    return default_collate(samples) if isinstance(samples, list) else samples


def mixed(seed: int, epoch: int, index: int) -> int:
    """64 bits that differ wildly between neighbours, the same on every machine."""
    digest = hashlib.blake2b(struct.pack("<QQQ", seed, epoch, index), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Random numbers on the CPU start from `number` inside, and go on as before outside."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    # Not torch.manual_seed: that would also start the GPUs' generators anew.
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
