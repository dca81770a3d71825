"""Local files of the built-in data sets: where they are searched, and what is missing.

Loads no torch: used to check a preset before a run starts, and by the ranks that read the files.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from distrain.models.errors import TaskError

NEED_FOLDER = ("mnist", "cifar10", "imagefolder")

MNIST = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR10_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10_EVAL = ("test_batch",)


def digits_file() -> Path:
    """Return the path of scikit-learn's CSV of 1,797 digits.

    Does not import scikit-learn, which takes a second. Raises TaskError if it is not installed.
    """
    spec = find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "datasets", "data", "digits.csv.gz")
        if path.is_file():
            return path
    raise TaskError(
        "data.name",
        "the images of digits come with scikit-learn, which is not installed; "
        "run `pip install scikit-learn`",
    )


def python_documentation() -> bytes:
    """Return the texts of Python's own `help()`, about half a megabyte of English."""
    from pydoc_data.topics import topics

    return "\n\n".join(text for _, text in sorted(topics.items())).encode()


def text_file(root: str) -> Path:
    """Return the path of the text `data.root`. Raises TaskError if there is none."""
    path = Path(os.path.expanduser(root))
    if not path.is_file():
        raise TaskError("data.root", f"there is no file {path}")
    return path


def mnist_file(root: Path, name: str) -> Path | None:
    """Return an IDX file, compressed or not, in `root` or in torchvision's subfolder."""
    folders = (root, root / "MNIST" / "raw")
    return _first([folder / (name + end) for folder in folders for end in ("", ".gz")])


def cifar10_file(root: Path, name: str) -> Path | None:
    """Return a file of the "python version", in `root` or in the folder of the archive."""
    return _first([root / name, root / "cifar-10-batches-py" / name])


def missing(data: str, root: Path) -> list[str]:
    """Return the names of the files of mnist or cifar10 that `root` does not have."""
    if data == "mnist":
        return [name for name in MNIST if mnist_file(root, name) is None]
    return [name for name in CIFAR10_TRAIN + CIFAR10_EVAL if cifar10_file(root, name) is None]


def folder_of(data: str, root: str | None, download: bool = False) -> Path:
    """Return the folder of a data set, `data.root` of the config.

    Raises TaskError with what is missing in it, unless `download` allows to download that.
    """
    if root is None:
        raise TaskError("data.root", f"{data} is read from a folder; set data.root to its path")
    folder = Path(os.path.expanduser(root))
    can_download = data != "imagefolder"
    if download and can_download:
        return folder
    if not os.path.isdir(folder):
        fix = "set data.root to the folder of the files"
        fix += ", or data.download = true to download them" if can_download else ""
        raise TaskError("data.root", f"there is no folder {folder}; {fix}")
    if can_download:
        absent = missing(data, folder)
        fix = "put the files there, or set data.download = true to download them"
    else:
        absent = [f"{name}/" for name in ("train", "val") if not os.path.isdir(folder / name)]
        fix = "it needs train/ and val/, each with a folder per class"
    if absent:
        raise TaskError("data.root", f"{folder} has no {', '.join(absent)}; {fix}")
    return folder


def _first(paths: list[Path]) -> Path | None:
    return next((path for path in paths if os.path.isfile(path)), None)
