"""Names of tasks, networks and data sets, and what each stands for.

A built-in name is an alias of "package.module:factory"; a user's own is written so. Free
of torch: `problems` answers for a preset before anything starts, `resolve` imports.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from models import importing
from models.errors import TaskError, nearest
from models.files import NEED_FOLDER, digits_file, folder_of
from models.importing import Factory

Kind = Literal["task", "model", "data"]


class Builtin(NamedTuple):
    target: str
    about: str


TASKS = {
    "classification": Builtin(
        "models.classification:Classification", "Cross entropy; loss, top-1 and top-5."
    ),
}
NETWORKS = {
    "mlp": Builtin("models.networks:mlp", "Fully connected layers. args: hidden, dropout"),
    "cnn": Builtin(
        "models.networks:cnn", "The small CNN of PyTorch's MNIST tutorial. args: dropout"
    ),
}
DATASETS = {
    "digits": Builtin(
        "models.datasets:digits",
        "scikit-learn's 1,797 real 8×8 digits. args: holdout, evaluate_on, channels",
    ),
    "mnist": Builtin("models.datasets:mnist", "MNIST from local IDX files. args: channels"),
    "cifar10": Builtin(
        "models.datasets:cifar10", "CIFAR-10 from its local python version. args: augment, pad"
    ),
    "imagefolder": Builtin(
        "models.vision:imagefolder", "train/ and val/, a folder per class. args: size, augment"
    ),
    "synthetic": Builtin(
        "models.datasets:synthetic",
        "Seeded noise, for pure speed. "
        "args: shape, classes, samples, eval_samples, pool, on_device",
    ),
}
BUILTINS: dict[Kind, dict[str, Builtin]] = {"task": TASKS, "model": NETWORKS, "data": DATASETS}


def resolve(kind: Kind, name: str) -> Factory:
    """Import what `name` stands for and give the callable.

    Raises TaskError for a name that stands for nothing; what a user's module raises while
    it is imported comes out as it is.
    """
    key = f"{kind}.name"
    if builtin := BUILTINS[kind].get(name):
        return importing.load(key, builtin.target)
    if ":" in name:
        return importing.load(key, name)
    if kind == "model" and name in torchvision_networks():
        return partial(importing.load(key, "models.vision:network"), name)
    raise TaskError(key, _unknown(kind, name))


def problems(
    *, task: str, model: str, data: str, root: str | None = None, download: bool = False
) -> list[tuple[str, str]]:
    """Everything that can be told to be wrong without importing anything: (key, sentence)."""
    checks: list[Callable[[], object]] = [
        partial(_check_name, "task", task),
        partial(_check_name, "model", model),
        partial(_check_name, "data", data),
    ]
    if data == "digits":
        checks.append(digits_file)
    elif data in NEED_FOLDER:
        checks.append(partial(folder_of, data, root, download))
    found = []
    for check in checks:
        try:
            check()
        except TaskError as error:
            found.append((error.key, error.sentence))
    return found


@cache
def torchvision_networks() -> frozenset[str]:
    """Names of torchvision's classification models, read from its source: 3 s cheaper."""
    spec = find_spec("torchvision")
    folders = (spec.submodule_search_locations or []) if spec else []
    files = [path for folder in folders for path in Path(folder, "models").glob("*.py")]
    return frozenset(name for path in files for name in _registered(path))


def _registered(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if "@register_model()" not in text:
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            marks = {ast.unparse(mark) for mark in node.decorator_list}
            if "register_model()" in marks:
                yield node.name


def _unknown(kind: Kind, name: str) -> str:
    word = {"task": "task", "model": "model", "data": "data set"}[kind]
    if "." in name:
        return f'unknown {word} {name!r}; your own is written "package.module:factory"'
    known = set(BUILTINS[kind]) | (torchvision_networks() if kind == "model" else set())
    hint = nearest(name, known) or f"{nearest(name, BUILTINS[kind])} and torchvision's models"
    return f"unknown {word} {name!r}{hint}"


def _check_name(kind: Kind, name: str) -> None:
    if name in BUILTINS[kind] or (kind == "model" and name in torchvision_networks()):
        return
    if ":" not in name:
        raise TaskError(f"{kind}.name", _unknown(kind, name))
    importing.check(f"{kind}.name", name)
