"""How samples are held and handed out; which ones there are is `datasets.py`'s business.

A data set that gives whole batches (`__getitems__`) does without per-sample Python. One
with `wants_epoch` is asked by (epoch, index) instead of index, so that augmentation depends
on these and the seed alone: never on the rank, the loader process or the order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from numpy.random import mtrand
from torch import Tensor
from torch.utils.data import Dataset, default_collate

Key = tuple[int, int]
"""(epoch, index)"""

Numbers = npt.NDArray[np.uint64]


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
        images = self._moved(self.inputs[indices], mixed(self.seed, keys))
        return self.normalised(images), self.labels[indices]

    def _moved(self, images: Tensor, draws: Numbers) -> Tensor:
        height, width = images.shape[-2:]
        places = 2 * self.pad + 1
        top, left, mirrored = (
            torch.from_numpy((draws >> shift) % many).long()
            for shift, many in ((0, places), (20, places), (40, 2))
        )
        windows = F.pad(images, [self.pad] * 4).unfold(2, height, 1).unfold(3, width, 1)
        chosen = windows[torch.arange(len(images)), :, top, left]
        chosen[mirrored == 1] = chosen[mirrored == 1].flip(-1)
        return chosen


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
        raw, label = self.dataset[key[1]]
        with seeded(int(mixed(self.seed, [key])[0])):
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


def mixed(seed: int, keys: Sequence[Key]) -> Numbers:
    """For each key 64 bits (uint64) that differ wildly between neighbours.

    Seed, epoch and index go one after the other through SplitMix64's steps (Steele, Lea and
    Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
    """
    bits = np.zeros(len(keys), np.uint64)
    for part in (np.uint64(seed), *np.asarray(keys, np.uint64).T):
        bits = bits + part + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ bits >> np.uint64(31)
    return bits


_numpy_bits = np.random.MT19937()


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Random numbers on the CPU start from `number` inside, and go on as before outside."""
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    # Copying numpy's state takes half a millisecond, exchanging its source a few microseconds.
    numpy_source = mtrand.get_bit_generator()
    mtrand.set_bit_generator(_numpy_bits)
    # Not torch.manual_seed: that would also start the GPUs' generators anew.
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        mtrand.set_bit_generator(numpy_source)
