"""Kinds of data sets: how samples are stored, augmented and returned.

A data set with `__getitems__` returns whole batches, without Python code for each sample. The keys
of one with `wants_epoch` are (epoch, index) instead of an index, so that augmentation depends only
on these and the seed: never on the rank, the loader process or the order. The built-in data are in
`datasets`.
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

SampleKey = tuple[int, int]
"""(epoch, index)"""

UInt64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Data:
    """What a data factory returns: training and evaluation data, and what a network must know.

    `train` is a map-style data set or a stream (see `streams`), `eval` is a map-style one.

    `classes` and `shape` (of one input, e.g. channels × height × width) are None where they
    have no meaning. `eval` is None where there is nothing to evaluate. `finish` completes a batch
    after it was moved to the device.
    """

    train: Dataset[Any]
    eval: Dataset[Any] | None
    classes: int | None = None
    shape: tuple[int, ...] | None = None
    finish: Callable[[Any], Any] | None = None


class TensorData(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and labels in two tensors; a batch is one gather.

    With `mean` and `std` (per channel, in the units of `inputs`) batches are (x - mean) / std in
    float32, while the inputs keep their type, e.g. bytes.
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
        self.inputs = inputs
        self.labels = labels
        self.mean = None if mean is None else torch.tensor(mean).view(-1, 1, 1)
        self.std = None if std is None else torch.tensor(std).view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, key: Any) -> tuple[Tensor, Tensor]:
        inputs, labels = self.__getitems__([key])
        return inputs[0], labels[0]

    def __getitems__(self, keys: Sequence[Any]) -> tuple[Tensor, Tensor]:
        indices = torch.as_tensor(keys)
        return self.normalise(self.inputs[indices]), self.labels[indices]

    def normalise(self, inputs: Tensor) -> Tensor:
        """Return (inputs - mean) / std in float32; without mean and std the inputs themselves."""
        if self.mean is None or self.std is None:
            return inputs
        return inputs.to(torch.float32).sub_(self.mean).div_(self.std)


class CropFlipData(TensorData):
    """Images that are shifted by up to `pad` pixels, and half of them mirrored, a batch at once.

    This is the usual augmentation of CIFAR-10 (He et al. 2015, section 4.2); shifting adds black
    pixels. Keys are (epoch, index).
    """

    wants_epoch = True

    def __init__(self, *tensor_data: Any, pad: int, seed: int) -> None:
        super().__init__(*tensor_data)
        self.pad = pad
        self.seed = seed

    def __getitems__(self, keys: Sequence[SampleKey]) -> tuple[Tensor, Tensor]:
        indices = torch.tensor([index for _, index in keys])
        images = self._augment(self.inputs[indices], hash_keys(self.seed, keys))
        return self.normalise(images), self.labels[indices]

    def _augment(self, images: Tensor, random_bits: UInt64Array) -> Tensor:
        """Cut a window out of each padded image; the bits decide where, and if it is mirrored."""
        height, width = images.shape[-2:]
        offsets = 2 * self.pad + 1
        top = torch.from_numpy(random_bits % offsets).long()
        left = torch.from_numpy((random_bits >> 20) % offsets).long()
        mirrored = torch.from_numpy((random_bits >> 40) % 2).long()
        windows = F.pad(images, [self.pad] * 4).unfold(2, height, 1).unfold(3, width, 1)
        chosen = windows[torch.arange(len(images)), :, top, left]
        chosen[mirrored == 1] = chosen[mirrored == 1].flip(-1)
        return chosen


class Augmented(Dataset[Any]):
    """A data set of (raw, label) pairs with a random `transform` of the raw.

    Keys are (epoch, index).

    The transform may draw from torch, random and numpy.random: all three are seeded with
    (seed, epoch, index), and restored afterwards.
    """

    wants_epoch = True

    def __init__(self, dataset: Dataset[Any], transform: Callable[[Any], Any], seed: int) -> None:
        self.dataset = dataset
        self.transform = transform
        self.seed = seed

    def __len__(self) -> int:
        return length(self.dataset)

    def __getitem__(self, key: SampleKey) -> tuple[Any, Any]:
        raw, label = self.dataset[key[1]]
        with temporary_seed(int(hash_keys(self.seed, [key])[0])):
            return self.transform(raw), label


class FirstSamples(Dataset[Any]):
    """The first `count` samples; `__getitems__` and `wants_epoch` are those of the whole set."""

    def __init__(self, dataset: Dataset[Any], count: int) -> None:
        self.dataset = dataset
        self.count = count
        self.wants_epoch = bool(getattr(dataset, "wants_epoch", False))
        # A loader calls this attribute if it exists, so it must exist only if the set has it.
        if hasattr(dataset, "__getitems__"):
            self.__getitems__ = dataset.__getitems__

    def __len__(self) -> int:
        return min(self.count, length(self.dataset))

    def __getitem__(self, key: Any) -> Any:
        index = key[1] if isinstance(key, tuple) else key
        if index >= len(self):
            raise IndexError(index)
        return self.dataset[key]


def take_first(dataset: Dataset[Any], limit: int | None) -> Dataset[Any]:
    """Return the data set with its first `limit` samples; None is no limit."""
    return dataset if limit is None else FirstSamples(dataset, limit)


def length(dataset: Dataset[Any]) -> int:
    """Return len(dataset), which torch's type of a data set does not have."""
    count: int = dataset.__len__()  # type: ignore[attr-defined]
    return count


def collate(samples: Any) -> Any:
    """Join a list of samples as torch does; return a whole batch unchanged."""
    return default_collate(samples) if isinstance(samples, list) else samples


def hash_keys(seed: int, keys: Sequence[SampleKey]) -> UInt64Array:
    """Return 64 pseudorandom bits (uint64) for each key; neighbouring keys give unrelated bits.

    Seed, epoch and index are mixed in one after the other by the steps of SplitMix64 (Steele, Lea
    and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
    """
    bits = np.zeros(len(keys), np.uint64)
    for part in (np.uint64(seed), *np.asarray(keys, np.uint64).T):
        bits = bits + part + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ bits >> np.uint64(31)
    return bits


_spare_numpy_bits = [np.random.MT19937()]  # to make one takes longer than to seed it


def seed_cpu_generators(seed: int) -> None:
    """Seed the global generators of torch's CPU, `random` and `numpy.random`."""
    # Not torch.manual_seed, which would also seed the generators of the GPUs.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


@contextmanager
def temporary_seed(seed: int) -> Iterator[None]:
    """Seed the CPU's global generators in the block, and restore their states after it.

    The second of two normal numbers, which numpy draws at once and keeps, is not restored.
    """
    torch_state = torch.get_rng_state()
    python_state = random.getstate()
    # Exchanging numpy's bits takes less than a microsecond, copying its state seventy.
    numpy_bits = mtrand.get_bit_generator()
    # A block within this one takes others.
    temporary_bits = _spare_numpy_bits.pop() if _spare_numpy_bits else np.random.MT19937()
    mtrand.set_bit_generator(temporary_bits)
    seed_cpu_generators(seed)
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        mtrand.set_bit_generator(numpy_bits)
        _spare_numpy_bits.append(temporary_bits)
