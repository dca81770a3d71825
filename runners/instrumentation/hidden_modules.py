"""Modules that distrain has loaded and that a program has in its own folder, by the same name.

distrain loads much of the standard library that `python script.py` does not, so that `import csv`
would not find a csv.py next to the script. Such modules are hidden before the program runs: what is
imported from then on, by torch too, gets the program's, as under plain Python. Modules that are
loaded already, ours among them, keep what they have imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from itertools import takewhile
from types import ModuleType

_hidden: dict[str, ModuleType] = {}


def hide(folder: str) -> None:
    """Hide what a program with this folder first in its path would import from there.

    What Python itself loads at start-up stays, and what it finds before it searches folders.
    """
    at_startup = {*takewhile(lambda name: name != "site", [*sys.modules])}  # it is loaded last
    for name in {name.partition(".")[0] for name in sys.modules} - at_startup - {"distrain"}:
        if BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name):
            continue
        spec = PathFinder.find_spec(name, [folder])
        if spec is not None and spec.loader is not None and not _is_loaded(spec):
            for each in [*sys.modules]:
                if each == name or each.startswith(f"{name}."):
                    _hidden[each] = sys.modules.pop(each)


@contextmanager
def restored() -> Iterator[None]:
    """Let imports during the block find what is hidden, and not the program's modules.

    For functions of the standard library that import only when they are called.
    """
    programs = {name: sys.modules.get(name) for name in _hidden}
    sys.modules.update(_hidden)
    try:
        yield
    finally:
        for name, module in programs.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _is_loaded(spec: ModuleSpec) -> bool:
    """Return whether a module is loaded from the file of this spec."""
    loaded: str | None = getattr(sys.modules.get(spec.name), "__file__", None)
    if not loaded or not spec.origin:
        return False
    return os.path.realpath(loaded) == os.path.realpath(spec.origin)
