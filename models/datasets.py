"""The built-in data sets that need no torchvision: digits, mnist, cifar10, synthetic.

Factories draw from no global random generator, so that the weights which are drawn after
them depend on the seed alone.
"""

from __future__ import annotations

import gzip
import math
import pickle
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from models import files
from models.data import CropFlipData, Data, TensorData
from models.errors import TaskError

DIGITS_MEAN, DIGITS_STD = 4.884, 6.017  # of pixels from 0 to 16
MNIST_MEAN, MNIST_STD = 33.33, 78.57  # of pixels from 0 to 255
CIFAR10_MEAN, CIFAR10_STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)

SPLIT_SEED = 1797  # fixed, so that runs with different seeds are held to the same images


def digits(
    *, holdout: float = 0.2, evaluate_on: Literal["heldout", "all"] = "heldout", channels: int = 1
) -> Data:
    """scikit-learn's 1,797 images, 8×8, of the UCI optical digits test set.

    The held-out share is always the same images, drawn evenly from each digit; the default
    gives 1,437 to train and 360 to evaluate. `evaluate_on="all"` evaluates all 1,797.
    """
    if not 0 < holdout < 1:
        raise TaskError("data.args", f"holdout must lie between 0 and 1, not {holdout}")
    with gzip.open(files.digits_file(), "rt") as lines:
        table = torch.from_numpy(np.loadtxt(lines, delimiter=",", dtype=np.uint8))
    images, labels = table[:, :64].view(-1, 1, 8, 8), table[:, 64].long()
    held = _stratified(labels, holdout)
    mean, std = [DIGITS_MEAN] * channels, [DIGITS_STD] * channels
    images = _with_channels(images, channels)
    evaluated = held if evaluate_on == "heldout" else torch.ones_like(held)
    return Data(
        train=TensorData(images[~held], labels[~held], mean, std),
        eval=TensorData(images[evaluated], labels[evaluated], mean, std),
        classes=10,
        shape=(channels, 8, 8),
    )


def _stratified(labels: Tensor, share: float) -> Tensor:
    """A mask of ⌈share × n⌉ samples, with each class's part right to within one."""
    count, total = math.ceil(share * len(labels)), len(labels)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(SPLIT_SEED))
    by_class = order[labels[order].argsort(stable=True)]
    mask = torch.zeros(total, dtype=torch.bool)
    mask[by_class[torch.arange(count) * total // count]] = True
    return mask


def _with_channels(images: Tensor, channels: int) -> Tensor:
    """Grey images as `channels` equal ones, for networks that want colour."""
    if channels < 1:
        raise TaskError("data.args", f"channels must be 1 or more, not {channels}")
    return images.expand(-1, channels, -1, -1)


def mnist(*, root: str | None, download: bool = False, channels: int = 1) -> Data:
    """MNIST from its IDX files, packed or not, in `root` or `root`/MNIST/raw."""
    folder = files.folder_of("mnist", root, download)
    if files.missing("mnist", folder):
        _download("mnist", folder)
    images, labels, eval_images, eval_labels = (
        _idx(files.mnist_file(folder, name), 3 if "images" in name else 1) for name in files.MNIST
    )
    mean, std = [MNIST_MEAN] * channels, [MNIST_STD] * channels
    images, eval_images = (
        _with_channels(part.unsqueeze(1), channels) for part in (images, eval_images)
    )
    return Data(
        train=TensorData(images, labels.long(), mean, std),
        eval=TensorData(eval_images, eval_labels.long(), mean, std),
        classes=10,
        shape=tuple(images.shape[1:]),
    )


def _idx(path: Path | None, dimensions: int) -> Tensor:
    """An IDX file: two zeros, 8 for bytes, the number of dimensions, these, then the bytes.

    Format: http://yann.lecun.com/exdb/mnist/
    """
    assert path is not None, "folder_of or the download saw to it"
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
        if magic != 0x800 + dimensions:
            raise ValueError(f"it begins with {magic:#x}")
        pixels = torch.frombuffer(bytearray(content[4 + 4 * dimensions :]), dtype=torch.uint8)
        return pixels.view(shape)
    except (OSError, EOFError, zlib.error, struct.error, ValueError, RuntimeError) as error:
        raise TaskError(
            "data.root", f"{path} is not an IDX file of {dimensions} dimensions: {error}"
        ) from error


def cifar10(
    *,
    root: str | None,
    seed: int,
    download: bool = False,
    augment: bool = True,
    pad: int = 4,
) -> Data:
    """CIFAR-10 from its "python version" in `root` or `root`/cifar-10-batches-py.

    `augment` shifts training images by up to `pad` pixels and mirrors half of them.
    """
    folder = files.folder_of("cifar10", root, download)
    if files.missing("cifar10", folder):
        _download("cifar10", folder)
    held = (*_cifar10_images(folder, files.CIFAR10_TRAIN), CIFAR10_MEAN, CIFAR10_STD)
    train: Dataset[Any] = CropFlipData(*held, pad=pad, seed=seed) if augment else TensorData(*held)
    evaluated = TensorData(*_cifar10_images(folder, files.CIFAR10_EVAL), CIFAR10_MEAN, CIFAR10_STD)
    return Data(train, evaluated, classes=10, shape=(3, 32, 32))


def _cifar10_images(folder: Path, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    pixels, labels = [], []
    for name in names:
        path = files.cifar10_file(folder, name)
        assert path is not None, "folder_of or the download saw to it"
        try:
            with path.open("rb") as file:
                batch = _ArrayUnpickler(file, encoding="latin1").load()
            pixels.append(torch.from_numpy(batch["data"]).view(-1, 3, 32, 32))
            labels.append(torch.tensor(batch["labels"]))
        except (pickle.UnpicklingError, EOFError, LookupError, TypeError, RuntimeError) as error:
            raise TaskError(
                "data.root", f"{path} is not a batch of CIFAR-10's python version: {error}"
            ) from error
    return torch.cat(pixels), torch.cat(labels)


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays, lists and text; a pickle could otherwise run any code."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        super().__init__(file, encoding=encoding)
        rebuild = np.empty(0).__reduce__()[0]
        self._known = {
            ("numpy.core.multiarray", "_reconstruct"): rebuild,
            ("numpy._core.multiarray", "_reconstruct"): rebuild,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return self._known[module, name]


def _download(name: str, folder: Path) -> None:
    from models.vision import download  # torchvision costs seconds, and is rarely needed here

    download(name, folder)


def synthetic(
    *,
    seed: int,
    device: torch.device,
    shape: Sequence[int] = (3, 224, 224),
    classes: int = 1000,
    samples: int = 10_240,
    eval_samples: int = 1_024,
    pool: int = 64,
    on_device: bool = False,
) -> Data:
    """Noise with random labels: `pool` distinct samples, over and over, for pure speed.

    With `on_device` the pool lies on the run's device and only indices are loaded.
    """
    if min(samples, eval_samples, pool, classes, *shape) < 1:
        raise TaskError("data.args", "shape, classes, samples and pool must all be 1 or more")
    place = device if on_device else torch.device("cpu")
    generator = torch.Generator(place).manual_seed(seed)
    inputs = torch.randn(pool, *shape, generator=generator, device=place)
    labels = torch.randint(classes, (pool,), generator=generator, device=place)
    noise = Pool(inputs, labels)
    train, evaluated = (
        Indices(count) if on_device else PoolData(noise, count) for count in (samples, eval_samples)
    )
    return Data(train, evaluated, classes, tuple(shape), finish=noise if on_device else None)


class Pool:
    """Samples to be had by any index, modulo their number."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __call__(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        chosen = indices % len(self.labels)
        return self.inputs[chosen], self.labels[chosen]


class Indices(Dataset[Tensor]):
    """A data set whose samples are their indices."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(index)

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        return torch.as_tensor(indices)


class PoolData(Dataset[tuple[Tensor, Tensor]]):
    """`count` samples out of a pool."""

    def __init__(self, pool: Pool, count: int) -> None:
        self.pool, self.count = pool, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.pool(torch.tensor(index))

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        return self.pool(torch.as_tensor(indices))
