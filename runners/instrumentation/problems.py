"""Problems of distrain in the process of a program: the first one is printed, and none ends it."""

from __future__ import annotations

import sys
import traceback

from distrain.runners.instrumentation import hidden_modules

_was_printed = False


def print_first(what: str = "something", *, is_exception: bool = True) -> None:
    """Print what could not be recorded, unless another problem was printed before.

    If it `is_exception`, the exception that is being handled follows.
    """
    global _was_printed
    if not _was_printed:
        _was_printed = True
        text = f"distrain could not record {what}; further problems are not printed"
        print(f"{text}:" if is_exception else text, file=sys.stderr)
        if is_exception:
            with hidden_modules.restored():
                traceback.print_exc()
