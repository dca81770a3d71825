"""A user's own "package.module:factory": checked without importing it, then imported.

Modules are found as Python finds them, and after that in the current folder. Each function
takes the `key` of the config that its TaskErrors are to name.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from models.errors import TaskError, nearest

Factory = Callable[..., Any]

OUR_PACKAGES = ("models", "runners", "presets", "tui")


def load(key: str, target: str) -> Factory:
    """Import the module and give the factory.

    Raises TaskError where there is no such module or no such factory in it; what the module
    raises while it is imported comes out as it is.
    """
    module, name = _parts(key, target)
    _see_current_folder()
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise TaskError(key, _no_module(module)) from None
    if not hasattr(loaded, name):
        known = [label for label, value in vars(loaded).items() if callable(value)]
        raise TaskError(key, f"{target}: {name!r} is not defined there{nearest(name, known)}")
    factory: Any = getattr(loaded, name)
    if not callable(factory):
        raise TaskError(key, f"{target} is {factory!r}, which cannot be called")
    return factory  # type: ignore[no-any-return]


def check(key: str, target: str) -> None:
    """Raise TaskError where it can be told without importing that `load` would."""
    module, factory = _parts(key, target)
    spec = _found(key, module)
    if spec.origin and spec.origin.endswith(".py"):
        _check_defined(key, Path(spec.origin), factory)


def _parts(key: str, name: str) -> tuple[str, str]:
    module, _, factory = name.partition(":")
    if module.endswith(".py"):
        raise TaskError(
            key, f'{name!r} names a file; name its module, as "{Path(module).stem}:{factory}"'
        )
    if not all(part.isidentifier() for part in [*module.split("."), factory]):
        raise TaskError(key, f'{name!r} is not of the form "package.module:factory"')
    return module, factory


def _see_current_folder() -> None:
    """Make the user's modules importable, behind ours and the installed ones."""
    sys.path += [folder for folder in _behind() if folder not in sys.path]
    importlib.invalidate_caches()


def _behind() -> list[str]:
    """Where modules are sought that are nowhere on Python's path."""
    # Ours may not be on it (an editable install), and spawned loader processes inherit it.
    return [str(Path(__file__).parents[1]), os.getcwd()]


def _found(key: str, module: str) -> ModuleSpec:
    """Find a module without importing it or, unlike `find_spec`, its parents."""
    importlib.invalidate_caches()
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, _behind())
    except ValueError:  # __main__ and its like have no spec
        spec = None
    for part in rest:
        folders = list((spec.submodule_search_locations if spec else None) or [])
        spec = PathFinder.find_spec(part, folders)
    if spec is None:
        raise TaskError(key, _no_module(module))
    return spec


def _no_module(module: str) -> str:
    top = module.partition(".")[0]
    if top in OUR_PACKAGES:
        return f"no module {module!r}: {top} is a package of distrain, call yours something else"
    here = Path.cwd()
    near = {path.stem for path in here.glob("*.py")} if top == module else set()
    hint = nearest(module, near) if near else ""
    return f"no module {module!r}, neither installed nor in {here}{hint}"


def _check_defined(key: str, source: Path, factory: str) -> None:
    try:
        tree = ast.parse(source.read_bytes())
    except SyntaxError as error:
        raise TaskError(key, f"{source}, line {error.lineno}: {error.msg}") from None
    names = set(_bound(tree.body))
    if factory not in names and not names & {"*", "__getattr__"}:
        raise TaskError(key, _no_factory(source, factory, tree))


def _no_factory(source: Path, factory: str, tree: ast.Module) -> str:
    kinds = (ast.FunctionDef, ast.ClassDef)
    known = [node.name for node in tree.body if isinstance(node, kinds)]
    return f"{source} defines no {factory!r}{nearest(factory, known)}"


def _bound(body: Iterable[ast.AST]) -> Iterator[str]:
    """Names that a module's statements bind, those under if, try and with included."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for part in (part for target in targets for part in ast.walk(target)):
                if isinstance(part, ast.Name):
                    yield part.id
        else:
            for block in ("body", "orelse", "handlers", "finalbody", "cases"):
                yield from _bound(getattr(node, block, []))
