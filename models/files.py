"""Local files of the built-in data sets: where they may lie, and what is missing.

Free of torch: asked before a run starts, and again by the ranks that read the files.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from models.errors import TaskError

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
    """scikit-learn's CSV of 1,797 digits, found without importing scikit-learn (a second).

    Raises TaskError where it is not installed.
    """
    spec = find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "datasets", "data", "digits.csv.gz")
        if path.is_file():
            return path
    raise TaskError(
        "data.name",
        "digits are images that come with scikit-learn, which is not installed here: "
        "pip install scikit-learn",
    )


def mnist_file(root: Path, name: str) -> Path | None:
    """An IDX file, packed or not, in `root` or where torchvision puts it below."""
    folders = (root, root / "MNIST" / "raw")
    return _first([folder / (name + end) for folder in folders for end in ("", ".gz")])


def cifar10_file(root: Path, name: str) -> Path | None:
    """A batch file of the "python version", in `root` or in the folder of the archive."""
    return _first([root / name, root / "cifar-10-batches-py" / name])


def missing(data: str, root: Path) -> list[str]:
    """Names of the files of mnist or cifar10 that are not below `root`."""
    if data == "mnist":
        return [name for name in MNIST if mnist_file(root, name) is None]
    return [name for name in CIFAR10_TRAIN + CIFAR10_EVAL if cifar10_file(root, name) is None]


def folder_of(data: str, root: str | None, download: bool = False) -> Path:
    """The folder of `data`, which holds all that is needed unless `download` is allowed.

    Raises TaskError with what is missing and where it was looked for.
    """
    if root is None:
        raise TaskError("data.root", f"{data} is read from a folder: set data.root to it")
    folder = Path(root).expanduser()
    if download and data != "imagefolder":
        return folder
    if not folder.is_dir():
        raise TaskError("data.root", f"there is no folder {folder}")
    if data == "imagefolder":
        lacking = [f"{name}/" for name in ("train", "val") if not (folder / name).is_dir()]
        mend = "it needs train/ and val/, each with a folder per class"
    else:
        lacking = missing(data, folder)
        mend = "put the files there, or allow to fetch them with data.download = true"
    if lacking:
        raise TaskError("data.root", f"{folder} has no {', '.join(lacking)}; {mend}")
    return folder


def _first(paths: list[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)
