"""Everything that uses torchvision: its networks by name, folders of images, downloads.

It is a separate module because importing torchvision takes as long as importing torch.
"""

from __future__ import annotations

import fcntl
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from distrain.models import files
from distrain.models.data import Augmented, Data
from distrain.models.errors import TaskError
from distrain.models.torchvision_compat import torchvision

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
DEFAULT_SHAPE = (3, 224, 224)  # all networks take images of this shape

# Auxiliary classifiers need a loss of their own, and these two networks warn unless
# `init_weights` is set.
DEFAULT_ARGS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}


def network(
    name: str, *, shape: Sequence[int], classes: int, data_name: str = "this data", **args: Any
) -> nn.Module:
    """Make a classification model of torchvision, with random weights unless `args` has others.

    `shape` is that of an image, `data_name` the name of the data for error messages. Raises
    TaskError if the model does not take `args` or images of this shape.
    """
    if len(shape) != 3 or shape[0] != 3:
        raise TaskError("model.name", _needs_colour(name, shape, data_name))
    if args.get("aux_logits"):
        raise TaskError("model.args", f"{name}: the loss does not use aux_logits; leave it out")
    builder = torchvision.models.get_model_builder(name)
    args = {**DEFAULT_ARGS.get(name, {}), **_size_args(builder, shape), **args}
    try:
        model: nn.Module = builder(num_classes=classes, **args)
    except (AssertionError, TypeError, ValueError) as error:
        raise TaskError("model.args", f"{name} does not take these arguments: {error}") from error
    if tuple(shape) != DEFAULT_SHAPE:
        _try_image(model, name, shape, data_name)
    return model


def _needs_colour(name: str, shape: Sequence[int], data_name: str) -> str:
    fix = "use cnn or mlp"
    if data_name in ("digits", "mnist"):
        fix += ", or set data.args.channels = 3"
    images = f"those of {data_name} are {_format_shape(shape)}"
    return f"{name} takes images with 3 channels, but {images}; {fix}"


def _format_shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _size_args(builder: Any, shape: Sequence[int]) -> dict[str, Any]:
    """Return the argument for the image size, for the two families that need it."""
    family = inspect.getmodule(builder)
    if family is torchvision.models.vision_transformer:
        return {"image_size": shape[1]}
    if family is torchvision.models.maxvit:
        return {"input_size": tuple(shape[1:])}
    return {}


def _try_image(model: nn.Module, name: str, shape: Sequence[int], data_name: str) -> None:
    """Check the shape with one image, because most networks have an undocumented minimum size."""
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise TaskError(
            "model.name",
            f"{name} cannot take the {_format_shape(shape)} images of {data_name}: {error}",
        ) from error
    model.train()


class Images(Dataset[Any]):
    """torchvision's ImageFolder: (image, label) pairs.

    A class of this module, so that a spawned loader process imports `torchvision_compat` first.
    """

    def __init__(self, root: Path, transform: Any = None) -> None:
        try:
            self.folder = torchvision.datasets.ImageFolder(str(root), transform)
        except FileNotFoundError as error:
            raise TaskError("data.root", str(error).strip().replace("\n", " ")) from None
        self.classes: list[str] = self.folder.classes

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = self.folder[index]
        return image, label


class AugmentedImages(Augmented):
    """`Augmented` as a class of this module, for the same reason as `Images`."""


def imagefolder(*, root: str | None, seed: int, size: int = 224, augment: bool = True) -> Data:
    """Read images from `root`/train and `root`/val, one folder per class (the ImageNet layout).

    Training images are randomly cropped and mirrored, unless `augment` is false. Evaluation
    images are scaled to `size` × 256/224 and cropped in the middle.
    """
    folder = files.folder_of("imagefolder", root)
    if size < 1:
        raise TaskError("data.args", f"size must be 1 or more, not {size}")
    centre = _make_transform(_centre_crop(size))
    evaluation = Images(folder / "val", centre)
    train: Dataset[Any]
    if augment:
        raw = Images(folder / "train")
        classes = raw.classes
        train = AugmentedImages(raw, _make_transform(_random_crop(size)), seed)
    else:
        images = Images(folder / "train", centre)
        classes = images.classes
        train = images
    _require_same_classes(folder, classes, evaluation.classes)
    return Data(train, evaluation, classes=len(classes), shape=(3, size, size))


def _require_same_classes(folder: Path, train: list[str], evaluation: list[str]) -> None:
    different = sorted(set(train) ^ set(evaluation))
    if different:
        names = ", ".join(different[:5])
        if len(different) > 5:
            names += " …"
        raise TaskError(
            "data.root",
            f"{folder}: train/ and val/ must have the same classes, but only one of them has "
            f"{names}",
        )


def _random_crop(size: int) -> list[Any]:
    transforms = torchvision.transforms
    return [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]


def _centre_crop(size: int) -> list[Any]:
    transforms = torchvision.transforms
    return [transforms.Resize(round(size * 256 / 224)), transforms.CenterCrop(size)]


def _make_transform(steps: list[Any]) -> Any:
    transforms = torchvision.transforms
    to_tensor = [transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return transforms.Compose([*steps, *to_tensor])


def download(name: str, folder: Path) -> None:
    """Download mnist or cifar10 into a folder; of several ranks only one does it.

    Raises TaskError if that fails.
    """
    dataset = {"mnist": torchvision.datasets.MNIST, "cifar10": torchvision.datasets.CIFAR10}[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".download.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if files.missing(name, folder):
                dataset(str(folder), download=True)
    except (OSError, RuntimeError) as error:
        raise TaskError(
            "data.download", f"{name} could not be downloaded to {folder}: {error}"
        ) from error
