"""Files on PYTHONPATH that Python loads in place of its own modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def hidden_module(
    environment: Mapping[str, str] | None = None, among: Iterable[str] = sys.stdlib_module_names
) -> str:
    """Return a sentence about a file that hides one of these modules; empty where none does."""
    path = (os.environ if environment is None else environment).get("PYTHONPATH", "")
    names = sorted(sys.stdlib_module_names.intersection(among))
    for folder in filter(None, path.split(os.pathsep)):
        for name in names:
            for file in (Path(folder, f"{name}.py"), Path(folder, name, "__init__.py")):
                if file.is_file():
                    return f"{file} hides Python's module {name}: rename it or change PYTHONPATH"
    return ""
