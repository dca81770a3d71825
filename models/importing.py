"""A user's own "package.module:factory": how it is searched for, checked and imported.

Modules are searched for in the standard library, then in the user's folders (`user_folders`), then
on the rest of Python's path: PYTHONPATH and the installed packages. Functions that take a `key`
raise TaskErrors that name this key of the config.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from distrain import old_names
from distrain.models.errors import TaskError, nearest

Factory = Callable[..., Any]
MOST_PARSES = 20


def user_folders(code_dir: str | None, base_dir: str | os.PathLike[str] = ".") -> list[str]:
    """Return the absolute folders in which a user's modules are searched for first.

    These are `code_dir` of the config, if any, and `base_dir`, the folder that the run was launched
    from, to which a relative `code_dir` refers.
    """
    base = os.path.abspath(base_dir)
    folders = [base]
    if code_dir:
        folders.insert(0, os.path.normpath(os.path.join(base, os.path.expanduser(code_dir))))
    return list(dict.fromkeys(folders))


def make_importable(folders: Sequence[str]) -> None:
    """Put the user's folders on this process's `sys.path`; processes spawned later inherit it."""
    sys.path[:] = _search_path(folders, sys.path)
    importlib.invalidate_caches()


def load(key: str, target: str) -> Factory:
    """Import the module and return the factory.

    Raises TaskError if there is no such module or factory, or if the module imports a package by
    the name that it had in an earlier version. Other exceptions of the module pass unchanged.
    """
    module, name = _split(key, target)
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if explanation := old_names.explain(error.name or ""):
            raise TaskError(key, _with_importer(module, error.name, explanation)) from None
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise TaskError(key, f"no module {module!r}") from None
    if not hasattr(loaded, name):
        known = [label for label, value in vars(loaded).items() if callable(value)]
        raise TaskError(key, f"{target}: {name!r} is not defined there{nearest(name, known)}")
    factory: Any = getattr(loaded, name)
    if not callable(factory):
        raise TaskError(key, f"{target} is {factory!r}, which cannot be called")
    return factory  # type: ignore[no-any-return]


def check(key: str, target: str, folders: Sequence[str]) -> None:
    """Raise TaskError if `load` would, as far as the source shows; imports nothing.

    `folders` are the user's, as from `user_folders`.
    """
    module, factory = _split(key, target)
    spec = _find(key, module, folders)
    if spec.origin and spec.origin.endswith(".py"):
        _check_defined(key, Path(spec.origin), factory)


def _split(key: str, target: str) -> tuple[str, str]:
    module, _, factory = target.partition(":")
    if module.endswith(".py"):
        correct = f"{Path(module).stem}:{factory}"
        raise TaskError(key, f'{target!r} names a file; write its module, "{correct}"')
    if not all(part.isidentifier() for part in [*module.split("."), factory]):
        raise TaskError(key, f'{target!r} is not of the form "package.module:factory"')
    return module, factory


def _search_path(folders: Sequence[str], path: Sequence[str]) -> list[str]:
    """Return Python's path with the folders behind the standard library, in front of the rest."""
    standard = [entry for entry in path if _is_standard_library(entry)]
    rest = [entry for entry in path if entry not in standard and entry not in folders]
    return [*standard, *folders, *rest]


def _is_standard_library(entry: str) -> bool:
    folder = os.path.dirname(os.__file__)
    archive = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    extensions = os.path.join(os.path.basename(folder), "lib-dynload")
    return entry == folder or os.path.basename(entry) == archive or entry.endswith(extensions)


def _find(key: str, module: str, folders: Sequence[str]) -> ModuleSpec:
    """Find a module as a rank would, without importing it or, unlike `find_spec`, its parents."""
    importlib.invalidate_caches()
    top, *rest = module.split(".")
    spec = _find_top(top, folders)
    for part in rest:
        locations = (spec.submodule_search_locations if spec else None) or []
        spec = PathFinder.find_spec(part, list(locations))
    if spec is None or old_names.is_own_file(top, spec.origin):
        raise TaskError(key, _no_module(module, folders))
    if top in sys.stdlib_module_names and (hidden := _in_folders(top, folders)):
        raise TaskError(key, f"{hidden} is hidden by Python's own module {top!r}: rename it")
    return spec


def _find_top(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    # A rank does not have the folder of the script that this process runs.
    path = sys.path[0 if sys.flags.safe_path else 1 :]
    if name not in sys.builtin_module_names:
        spec = PathFinder.find_spec(name, _search_path(folders, path))
        if name == "runners":  # a user's own `runners` folder takes precedence (see old_names)
            spec = PathFinder.find_spec(name, folders) or spec
        if spec is not None:
            return spec
    try:
        return importlib.util.find_spec(name)  # built in, or of an editable install
    except ValueError:  # modules such as `__main__` have no spec
        return None


def _in_folders(name: str, folders: Sequence[str]) -> str:
    spec = PathFinder.find_spec(name, list(folders))
    return (spec.origin if spec else None) or ""


def _with_importer(module: str, missing: str | None, explanation: str) -> str:
    return explanation if missing == module else f"{module} imports {missing!r}: {explanation}"


def _no_module(module: str, folders: Sequence[str]) -> str:
    if explanation := old_names.explain(module):
        return f"no module {module!r}: {explanation}"
    hint = ""
    if "." not in module:
        files = {path.stem for folder in folders for path in Path(folder).glob("*.py")}
        hint = nearest(module, files) if files else ""
    return f"no module {module!r} in {' or '.join(folders)}, nor is one installed{hint}"


def _check_defined(key: str, source: Path, factory: str) -> None:
    try:
        tree = parse(source.read_bytes())
    except SyntaxError as error:
        raise TaskError(key, f"{source}, line {error.lineno}: {error.msg}") from None
    names = set(_bound_names(tree.body))
    # A star import or __getattr__ may provide any name.
    if factory not in names and not names & {"*", "__getattr__"}:
        kinds = (ast.FunctionDef, ast.ClassDef)
        known = [node.name for node in tree.body if isinstance(node, kinds)]
        raise TaskError(key, f"{source} defines no {factory!r}{nearest(factory, known)}")


def parse(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a source. Raises SyntaxError.

    CPython 3.11.7, 3.12.1 and older count the depth of a tree wrongly while another thread parses,
    and raise SystemError (cpython#106905).
    """
    for _ in range(MOST_PARSES):
        with suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def _bound_names(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that a module's statements bind, also under if, try and with."""
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
                yield from _bound_names(getattr(node, block, []))
