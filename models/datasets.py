"""The built-in data sets that do not need torchvision: digits, mnist, cifar10, synthetic.

The factories do not draw from global random generators, so that the weights, which are drawn
afterwards, depend only on the seed.
"""

from __future__ import annotations

import gzip
import math
import pickle
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from distrain.models import files
from distrain.models.data import CropFlipData, Data, TensorData
from distrain.models.errors import TaskError

# Of pixels from 0 to 16.
DIGITS_MEAN = 4.884
DIGITS_STD = 6.017
# Of pixels from 0 to 255.
MNIST_MEAN = 33.33
MNIST_STD = 78.57
CIFAR10_MEAN = (125.3, 123.0, 113.9)
CIFAR10_STD = (63.0, 62.1, 66.7)

SPLIT_SEED = 1797  # fixed, so that runs with different seeds evaluate the same images


def digits(
    *, holdout: float = 0.2, evaluate_on: Literal["heldout", "all"] = "heldout", channels: int = 1
) -> Data:
    """Load scikit-learn's 1,797 images, 8×8, of the UCI optical digits test set.

    `holdout` is the share of images for evaluation: always the same images, evenly from each
    digit. The default leaves 1,437 to train and 360 to evaluate. `evaluate_on="all"` evaluates
    all 1,797.
    """
    if not 0 < holdout < 1:
        raise TaskError("data.args", f"holdout must be between 0 and 1, not {holdout}")
    with gzip.open(files.digits_file(), "rt") as lines:
        table = torch.from_numpy(np.loadtxt(lines, delimiter=",", dtype=np.uint8))
    images = table[:, :64].view(-1, 1, 8, 8)
    labels = table[:, 64].long()
    mean = [DIGITS_MEAN] * channels
    std = [DIGITS_STD] * channels
    images = _repeat_channels(images, channels)
    held_out = _stratified_mask(labels, holdout)
    evaluated = held_out if evaluate_on == "heldout" else torch.ones_like(held_out)
    return Data(
        train=TensorData(images[~held_out], labels[~held_out], mean, std),
        eval=TensorData(images[evaluated], labels[evaluated], mean, std),
        classes=10,
        shape=(channels, 8, 8),
    )


def _stratified_mask(labels: Tensor, share: float) -> Tensor:
    """Return a mask of ⌈share × n⌉ samples; each class has its share to within one sample."""
    total = len(labels)
    count = math.ceil(share * total)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(SPLIT_SEED))
    by_class = order[labels[order].argsort(stable=True)]
    mask = torch.zeros(total, dtype=torch.bool)
    mask[by_class[torch.arange(count) * total // count]] = True
    return mask


def _repeat_channels(images: Tensor, channels: int) -> Tensor:
    """Repeat the only channel of grey images, for networks that take colour images."""
    if channels < 1:
        raise TaskError("data.args", f"channels must be 1 or more, not {channels}")
    return images.expand(-1, channels, -1, -1)


def mnist(*, root: str | None, download: bool = False, channels: int = 1) -> Data:
    """Load MNIST from its IDX files, compressed or not, in `root` or `root`/MNIST/raw."""
    folder = files.folder_of("mnist", root, download)
    if files.missing("mnist", folder):
        download_files("mnist", folder)
    images, labels, eval_images, eval_labels = (
        _read_idx(files.mnist_file(folder, name), 3 if "images" in name else 1)
        for name in files.MNIST
    )
    mean = [MNIST_MEAN] * channels
    std = [MNIST_STD] * channels
    images, eval_images = (
        _repeat_channels(part.unsqueeze(1), channels) for part in (images, eval_images)
    )
    return Data(
        train=TensorData(images, labels.long(), mean, std),
        eval=TensorData(eval_images, eval_labels.long(), mean, std),
        classes=10,
        shape=tuple(images.shape[1:]),
    )


def _read_idx(path: Path | None, dimensions: int) -> Tensor:
    """Read an IDX file of bytes.

    It has two zeros, the type (8: bytes), the number of dimensions, the dimensions and the bytes.
    Format: http://yann.lecun.com/exdb/mnist/
    """
    assert path is not None, "folder_of or the download has ensured it"
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
        if magic != 0x800 + dimensions:
            raise ValueError(f"it starts with {magic:#x}")
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
    """Load CIFAR-10 from its "python version" in `root` or `root`/cifar-10-batches-py.

    `augment` shifts training images by up to `pad` pixels and mirrors half of them.
    """
    folder = files.folder_of("cifar10", root, download)
    if files.missing("cifar10", folder):
        download_files("cifar10", folder)
    images, labels = _read_cifar10(folder, files.CIFAR10_TRAIN)
    train: Dataset[Any]
    if augment:
        train = CropFlipData(images, labels, CIFAR10_MEAN, CIFAR10_STD, pad=pad, seed=seed)
    else:
        train = TensorData(images, labels, CIFAR10_MEAN, CIFAR10_STD)
    images, labels = _read_cifar10(folder, files.CIFAR10_EVAL)
    evaluation = TensorData(images, labels, CIFAR10_MEAN, CIFAR10_STD)
    return Data(train, evaluation, classes=10, shape=(3, 32, 32))


# Errors of a file that is not a pickle, or has other content.
_DAMAGE_ERRORS = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    LookupError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _read_cifar10(folder: Path, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    pixels = []
    labels = []
    for name in names:
        path = files.cifar10_file(folder, name)
        assert path is not None, "folder_of or the download has ensured it"
        try:
            with path.open("rb") as file:
                batch = _ArrayUnpickler(file, encoding="latin1").load()
            pixels.append(torch.from_numpy(batch["data"].values).view(-1, 3, 32, 32))
            labels.append(torch.tensor(batch["labels"]))
        except _DAMAGE_ERRORS as error:
            raise TaskError(
                "data.root", f"{path} is not a batch file of CIFAR-10's python version: {error}"
            ) from error
    return torch.cat(pixels), torch.cat(labels)


class _ByteArray:
    """Replaces an array of numpy, which trusts what a pickle states about its memory."""

    def __init__(self, *_: object) -> None:
        self.values: Any = None  # until the content follows

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, _, is_fortran, content = state
        data = content.encode("latin1") if isinstance(content, str) else content
        values = np.frombuffer(bytearray(memoryview(data)), np.uint8)
        self.values = values.reshape(shape, order="F" if is_fortran else "C")


class _ByteType:
    """Replaces the type of the elements of an array, which is always the same."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


class _ArrayUnpickler(pickle.Unpickler):
    """Loads arrays of bytes, lists and text only; a pickle could otherwise run any code."""

    _known: ClassVar[dict[tuple[str, str], type]] = {
        ("numpy.core.multiarray", "_reconstruct"): _ByteArray,
        ("numpy._core.multiarray", "_reconstruct"): _ByteArray,
        ("numpy", "ndarray"): _ByteArray,
        ("numpy", "dtype"): _ByteType,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"it contains {module}.{name}")
        return self._known[module, name]


def download_files(name: str, folder: Path) -> None:
    """Download mnist or cifar10 to a folder. Raises TaskError if that fails."""
    # Imported here, because torchvision takes seconds and is rarely needed.
    from distrain.models.vision import download

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
    """Make noise with random labels, to measure speed: `pool` different samples, repeated.

    With `on_device` the pool is kept on the run's device, and only indices are loaded.
    """
    if min(samples, eval_samples, pool, classes, *shape) < 1:
        raise TaskError("data.args", "shape, classes, samples and pool must all be 1 or more")
    pool_device = device if on_device else torch.device("cpu")
    generator = torch.Generator(pool_device).manual_seed(seed)
    inputs = torch.randn(pool, *shape, generator=generator, device=pool_device)
    labels = torch.randint(classes, (pool,), generator=generator, device=pool_device)
    sample_pool = SamplePool(inputs, labels)
    if on_device:
        return Data(
            IndexData(samples),
            IndexData(eval_samples),
            classes,
            tuple(shape),
            finish=sample_pool,
        )
    return Data(
        PoolData(sample_pool, samples), PoolData(sample_pool, eval_samples), classes, tuple(shape)
    )


class SamplePool:
    """Returns samples by index, modulo their number."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs = inputs
        self.labels = labels

    def __call__(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        chosen = indices % len(self.labels)
        return self.inputs[chosen], self.labels[chosen]


class IndexData(Dataset[Tensor]):
    """A data set whose samples are their own indices."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(index)

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        return torch.as_tensor(indices)


class PoolData(Dataset[tuple[Tensor, Tensor]]):
    """A data set of `count` samples from a pool."""

    def __init__(self, pool: SamplePool, count: int) -> None:
        self.pool = pool
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.pool(torch.tensor(index))

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        return self.pool(torch.as_tensor(indices))
