"""Problems of ours in the process of a program: the first one is printed, and none ends it."""

from __future__ import annotations

import sys
import traceback

_was_printed = False


def print_first() -> None:
    """Print the exception that is being handled, unless another one was printed before."""
    global _was_printed
    if not _was_printed:
        _was_printed = True
        text = "a value could not be recorded; further problems are not printed:"
        print(f"distrain: {text}", file=sys.stderr)
        traceback.print_exc()
