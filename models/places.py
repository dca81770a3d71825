"""Where a function of the user's is defined, for messages."""

from __future__ import annotations

import inspect
import os
from typing import Any


def place_of(function: Any) -> str:
    """Return a function as a message names it: "loss() in net.py, line 12".

    The file is relative to the current folder where it lies in it and the folder still exists.
    """
    plain = inspect.unwrap(getattr(function, "__func__", function))
    name = getattr(plain, "__name__", type(plain).__name__)
    called = "a lambda" if name == "<lambda>" else f"{name}()"
    code = getattr(plain, "__code__", None)
    if code is None:
        return called
    path = code.co_filename
    try:
        folder = os.path.join(os.getcwd(), "")
    except OSError:  # the current folder was deleted
        folder = ""
    return f"{called} in {path.removeprefix(folder)}, line {code.co_firstlineno}"
