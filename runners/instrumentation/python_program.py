"""Runs a Python script or module as `python script.py` and `python -m module` do.

The program becomes `__main__` for good, so that its threads, its exit handlers and the processes
that it spawns find it there.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

from distrain.runners.instrumentation import hidden_modules


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run a file. All exceptions pass, also those of reading and compiling it."""
    file = os.path.abspath(path)
    sys.argv = [path, *arguments]
    _add_to_path(os.path.dirname(os.path.realpath(file)))
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    _run(code, __file__=file, __loader__=SourceFileLoader("__main__", file), __spec__=None)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module, or `__main__` of a package. All exceptions pass.

    Raises ModuleNotFoundError if there is no such module.
    """
    sys.argv = ["-m", *arguments]  # as modules see it that the search imports
    _add_to_path(os.getcwd())
    spec = _find(name)
    loader: Any = spec.loader
    sys.argv[0] = spec.origin or name
    _run(
        loader.get_code(spec.name),
        __file__=spec.origin,
        __loader__=loader,
        __spec__=spec,
        __package__=spec.parent,
    )


def print_uncaught(error: BaseException) -> None:
    """Print the exception that ends the program, as Python does before it exits.

    Call it while no exception is handled: a hook of the program must not find one.
    """
    trace = error.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit:
        raise
    except BaseException as mistake:
        hide_own_frames(mistake)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(mistake), mistake, mistake.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, trace)


def hide_own_frames(error: BaseException) -> None:
    """Take the frames of this package, also those of hooks, out of the traceback of an exception,
    and out of those that led to it.
    """
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = _programs_traceback(each)
            chain += [each.__cause__, each.__context__]


def _programs_traceback(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    last = trace
    while last:
        while last.tb_next and _is_in_package(last.tb_next.tb_frame.f_code.co_filename):
            last.tb_next = last.tb_next.tb_next
        last = last.tb_next
    return trace


def _add_to_path(folder: str) -> None:
    if not os.environ.get("PYTHONSAFEPATH"):  # the user's: ranks are started without it
        sys.path.insert(0, folder)
        hidden_modules.hide(folder)


def _find(name: str) -> ModuleSpec:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or not hasattr(spec.loader, "get_code"):
        package = name.removesuffix(".__main__")
        hint = f"; {package!r} is a package and cannot be executed" if package != name else ""
        raise ModuleNotFoundError(f"No module named {name}{hint}", name=name)
    return spec


def _run(code: CodeType, **attributes: Any) -> None:
    main = ModuleType("__main__")
    defaults = {
        "__annotations__": {},
        "__builtins__": builtins,
        "__cached__": None,
        "__package__": None,
    }
    vars(main).update(defaults | attributes)
    sys.modules["__main__"] = main
    # Where multiprocessing finds what its children send; it was imported before the program.
    sys.modules["__mp_main__"] = main
    exec(code, vars(main))  # noqa: S102 the program that the user runs


def _is_ours(file: str) -> bool:
    """Return whether code of this package, or Python's import system, is in a file."""
    return _is_in_package(file) or file.startswith("<frozen ")


def _is_in_package(file: str) -> bool:
    return file.startswith(os.path.dirname(__file__) + os.sep)
