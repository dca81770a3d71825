"""All that uses torchvision: its networks by name, folders of images, downloads.

A module of its own, because importing torchvision takes as long as importing torch.
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

from models import files
from models.data import Augmented, Data
from models.errors import TaskError
from models.torchvision_mend import torchvision

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MADE_FOR = (3, 224, 224)

# Auxiliary classifiers want a loss of their own; these two warn until told how to draw weights.
DEFAULTS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}


def network(
    name: str, *, shape: Sequence[int], classes: int, data_name: str = "this data", **args: Any
) -> nn.Module:
    """A torchvision classification model with fresh weights (`weights` is None unless given).

    Raises TaskError where it does not take `args` or images of `shape`.
    """
    if len(shape) != 3 or shape[0] != 3:
        raise TaskError("model.name", _colour(name, shape, data_name))
    if args.get("aux_logits"):
        raise TaskError("model.args", f"{name}: the loss has no use for aux_logits")
    builder = torchvision.models.get_model_builder(name)
    args = {**DEFAULTS.get(name, {}), **_sized(builder, shape), **args}
    try:
        model: nn.Module = builder(num_classes=classes, **args)
    except (AssertionError, TypeError, ValueError) as error:
        raise TaskError("model.args", f"{name} cannot be made with these: {error}") from error
    if tuple(shape) != MADE_FOR:
        _try_out(model, name, shape, data_name)
    return model


def _colour(name: str, shape: Sequence[int], data_name: str) -> str:
    mend = "; use cnn or mlp"
    if data_name in ("digits", "mnist"):
        mend += ", or data.args.channels = 3"
    return f"{name} takes images of 3 channels, those of {data_name} are {_product(shape)}{mend}"


def _product(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _sized(builder: Any, shape: Sequence[int]) -> dict[str, Any]:
    """The image size, for the two families that are built for one."""
    family = inspect.getmodule(builder)
    if family is torchvision.models.vision_transformer:
        return {"image_size": shape[1]}
    if family is torchvision.models.maxvit:
        return {"input_size": tuple(shape[1:])}
    return {}


def _try_out(model: nn.Module, name: str, shape: Sequence[int], data_name: str) -> None:
    """One image through the network, since most have a smallest size that nothing states."""
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise TaskError(
            "model.name",
            f"{name} cannot take the {_product(shape)} images of {data_name}: {error}",
        ) from error
    model.train()


class Images(Dataset[Any]):
    """torchvision's ImageFolder: (image, label) pairs.

    A class of this module, so that a spawned loader process imports the mend first.
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
    """Here for the same reason as `Images`."""


def imagefolder(*, root: str | None, seed: int, size: int = 224, augment: bool = True) -> Data:
    """Images in `root`/train and `root`/val, one folder per class (the ImageNet layout).

    Training images are cropped at random and mirrored unless `augment` is false; those of
    evaluation are scaled to size × 256/224 and cropped in the middle.
    """
    folder = files.folder_of("imagefolder", root)
    if size < 1:
        raise TaskError("data.args", f"size must be 1 or more, not {size}")
    still = _transform(_centred(size))
    evaluated = Images(folder / "val", still)
    train = Images(folder / "train", None if augment else still)
    _same_classes(folder, train.classes, evaluated.classes)
    return Data(
        train=AugmentedImages(train, _transform(_random(size)), seed) if augment else train,
        eval=evaluated,
        classes=len(train.classes),
        shape=(3, size, size),
    )


def _same_classes(folder: Path, train: list[str], evaluated: list[str]) -> None:
    if odd := sorted(set(train) ^ set(evaluated)):
        raise TaskError(
            "data.root",
            f"{folder}: train/ and val/ must have the same classes, only one of them has "
            f"{', '.join(odd[:5])}{' …' if len(odd) > 5 else ''}",
        )


def _random(size: int) -> list[Any]:
    transforms = torchvision.transforms
    return [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()]


def _centred(size: int) -> list[Any]:
    transforms = torchvision.transforms
    return [transforms.Resize(round(size * 256 / 224)), transforms.CenterCrop(size)]


def _transform(steps: list[Any]) -> Any:
    transforms = torchvision.transforms
    to_tensor = [transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return transforms.Compose([*steps, *to_tensor])


def download(name: str, folder: Path) -> None:
    """Fetch mnist or cifar10 into `folder`, once, however many ranks ask.

    Raises TaskError where that fails.
    """
    fetch = {"mnist": torchvision.datasets.MNIST, "cifar10": torchvision.datasets.CIFAR10}[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".download.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if files.missing(name, folder):
                fetch(str(folder), download=True)
    except (OSError, RuntimeError) as error:
        raise TaskError(
            "data.download", f"{name} could not be fetched into {folder}: {error}"
        ) from error
