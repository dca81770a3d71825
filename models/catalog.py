"""The names of tasks, networks and data sets, and their factories.

A built-in name is an alias of "package.module:factory"; a user's own is written in this form.
Loads no torch: `problems` checks a preset before anything starts, and only `resolve` imports.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from distrain.models import importing
from distrain.models.errors import TaskError, nearest
from distrain.models.files import NEED_FOLDER, digits_file, folder_of, text_file
from distrain.models.importing import Factory

ComponentKind = Literal["task", "model", "data"]


class Builtin(NamedTuple):
    """A built-in name: its "module:factory", and a description with the names of its args."""

    target: str
    about: str


TASKS = {
    "classification": Builtin(
        "distrain.models.classification:Classification", "Cross entropy; loss, top-1 and top-5."
    ),
    "language": Builtin(
        "distrain.models.language:Language",
        "Next token; loss, perplexity and, for bytes, bits per byte.",
    ),
}
NETWORKS = {
    "mlp": Builtin("distrain.models.networks:mlp", "Fully connected layers. args: hidden, dropout"),
    "cnn": Builtin(
        "distrain.models.networks:cnn", "The small CNN of PyTorch's MNIST tutorial. args: dropout"
    ),
    "gpt": Builtin(
        "distrain.models.language:gpt",
        "A small GPT with tied embeddings. args: layers, width, heads, context, dropout",
    ),
}
DATASETS = {
    "digits": Builtin(
        "distrain.models.datasets:digits",
        "scikit-learn's 1,797 real 8×8 digits. args: holdout, evaluate_on, channels",
    ),
    "mnist": Builtin(
        "distrain.models.datasets:mnist", "MNIST from local IDX files. args: channels"
    ),
    "cifar10": Builtin(
        "distrain.models.datasets:cifar10",
        "CIFAR-10 from its local python version. args: augment, pad",
    ),
    "imagefolder": Builtin(
        "distrain.models.vision:imagefolder",
        "train/ and val/, a folder per class. args: size, augment",
    ),
    "text": Builtin(
        "distrain.models.language:text",
        "Bytes of the file `root`, by default Python's documentation. args: context, holdout",
    ),
    "synthetic": Builtin(
        "distrain.models.datasets:synthetic",
        "Seeded noise, to measure speed. "
        "args: shape, classes, samples, eval_samples, pool, on_device",
    ),
}
BUILTINS: dict[ComponentKind, dict[str, Builtin]] = {
    "task": TASKS,
    "model": NETWORKS,
    "data": DATASETS,
}


def resolve(kind: ComponentKind, name: str) -> Factory:
    """Import the factory of a name and return it.

    Raises TaskError for an unknown name. Exceptions of a user's module pass unchanged.
    """
    key = f"{kind}.name"
    if builtin := BUILTINS[kind].get(name):
        return importing.load(key, builtin.target)
    if ":" in name:
        return importing.load(key, name)
    if kind == "model" and name in torchvision_networks():
        return partial(importing.load(key, "distrain.models.vision:network"), name)
    raise TaskError(key, _unknown_name(kind, name))


def problems(
    *,
    task: str,
    model: str,
    data: str,
    root: str | None = None,
    download: bool = False,
    folders: Sequence[str] | None = None,
) -> list[tuple[str, str]]:
    """Return what is wrong, as far as that is known without an import: (key, sentence).

    `folders` are searched first for the user's own modules; by default the current folder.
    """
    if folders is None:
        folders = importing.user_folders(None)
    checks: list[Callable[[], object]] = [
        partial(_check_name, "task", task, folders),
        partial(_check_name, "model", model, folders),
        partial(_check_name, "data", data, folders),
    ]
    if data == "digits":
        checks.append(digits_file)
    elif data == "text" and root is not None:
        checks.append(partial(text_file, root))
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
    """Return the names of torchvision's classification models.

    They are read from its source, because importing torchvision takes 3 s.
    """
    spec = find_spec("torchvision")
    folders = (spec.submodule_search_locations or []) if spec else []
    files = [path for folder in folders for path in Path(folder, "models").glob("*.py")]
    return frozenset(name for path in files for name in _registered_models(path))


def _registered_models(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if "@register_model()" not in text:
        return
    for node in importing.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            if "register_model()" in decorators:
                yield node.name


def _unknown_name(kind: ComponentKind, name: str) -> str:
    noun = {"task": "task", "model": "model", "data": "data set"}[kind]
    if "." in name:
        return f'unknown {noun} {name!r}; write your own as "package.module:factory"'
    known = set(BUILTINS[kind])
    if kind == "model":
        known |= torchvision_networks()
    # With torchvision's models the names are too many to list.
    hint = nearest(name, known) or f"{nearest(name, BUILTINS[kind])} and torchvision's models"
    return f"unknown {noun} {name!r}{hint}"


def _check_name(kind: ComponentKind, name: str, folders: Sequence[str]) -> None:
    if name in BUILTINS[kind] or (kind == "model" and name in torchvision_networks()):
        return
    if ":" not in name:
        raise TaskError(f"{kind}.name", _unknown_name(kind, name))
    importing.check(f"{kind}.name", name, folders)
