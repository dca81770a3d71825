"""The import names of earlier versions: `runners` still works, the others name their successors.

Versions before the package `distrain` installed `runners`, `models`, `tui` and `presets` at the top
level, where they hid folders of these names in a user's repository.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import distrain

OLD_PACKAGES = ("models", "presets", "runners", "tui")
# Documented modules that also changed their place within the engine.
MOVED = {
    "runners.claims": "runners.supervision.device_queue",
    "runners.comparison": "runners.analysis.comparison",
    "runners.config": "runners.config.schema",
    "runners.events": "runners.protocol.events",
    "runners.export": "runners.records.export",
    "runners.presets": "runners.config.presets",
    "runners.record": "runners.records.reader",
    "runners.reporter": "runners.protocol.reporter",
    "runners.series": "runners.records.timeseries.series",
}


def explain(module: str) -> str:
    """Return the sentence that names the successor of an old module; empty if there is none."""
    successor = MOVED.get(module, module)
    top, *rest = successor.split(".")
    if top not in OLD_PACKAGES:
        return ""
    path = os.path.join(os.path.dirname(distrain.__file__), top, *rest)
    if not (os.path.isdir(path) or os.path.isfile(f"{path}.py")):
        return ""
    return f"{module} is now distrain.{successor}; change the import"


def is_own_file(top: str, path: str | None) -> bool:
    """Return whether a file that was found by the old package name `top` belongs to distrain.

    It does in a checkout of distrain, where the packages are folders at the top.
    """
    if top not in OLD_PACKAGES or not path:
        return False
    ours = os.path.realpath(os.path.join(os.path.dirname(distrain.__file__), top))
    return os.path.realpath(path).startswith(f"{ours}/")


class _OldSubmodules:
    """A meta path finder that refuses submodules of `runners`, which would be loaded twice."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_ours = sys.modules.get("runners") is distrain
        if name.startswith("runners.") and name != "runners.__main__" and is_ours:
            message = explain(name) or f"{name} is no longer part of distrain"
            raise ModuleNotFoundError(message, name=name)
        return None


def refuse(module: str) -> None:
    """Raise ModuleNotFoundError for a package that was imported by its old name."""
    raise ModuleNotFoundError(explain(module), name=module)


def forward_runners() -> None:
    """Make `import runners` give the package `distrain`. Called while `runners` is imported.

    Where a user has a folder `runners` without an `__init__.py`, Python prefers ours to it: then
    its modules are importable nevertheless, next to the names of `distrain`.
    """
    if folders := _users_folders("runners"):
        module = sys.modules["runners"]
        module.__path__ = folders
        module.__getattr__ = partial(getattr, distrain)  # type: ignore[method-assign]
        return
    sys.modules["runners"] = distrain
    if _OldSubmodules not in sys.meta_path:
        sys.meta_path.insert(0, _OldSubmodules)


def _users_folders(package: str) -> list[str]:
    found = [Path(entry).absolute() / package for entry in sys.path]
    return [
        str(folder)
        for folder in found
        if not (folder / "__init__.py").exists() and any(folder.glob("*.py"))
    ]
