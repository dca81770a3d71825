"""Problems of distrain in the process of a program: the first one is printed, and none ends it."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback

from distrain.runners import formatting
from distrain.runners.errors import ConfigError
from distrain.runners.instrumentation import hidden_modules

_was_printed = False


def print_first(
    what: str = "something", *, is_exception: bool = True, is_sentence: bool = False
) -> None:
    """Print what could not be recorded, unless another problem was printed before.

    If it `is_exception`, the exception that is being handled follows: its sentence alone if it is a
    ConfigError or `is_sentence`, because a value of the program's has caused it. One that a signal
    handler of the program has raised belongs to the program: it is raised again.
    """
    global _was_printed
    error = sys.exception() if is_exception else None
    if error and _is_of_signal_handler(error):
        raise
    if _was_printed:
        return
    _was_printed = True
    if sys.stderr is None:  # `print` would take standard output
        return
    text = f"distrain could not record {what}"
    if error and (is_sentence or isinstance(error, ConfigError)):
        text += f": {formatting.single_line(str(error))}"
        error = None
    text += "; further problems are not printed"
    with contextlib.suppress(Exception):  # the program may have closed or replaced it
        print(f"{text}:" if error else text, file=sys.stderr)
        if error:
            with hidden_modules.restored():
                traceback.print_exc()


def _is_of_signal_handler(error: BaseException | None) -> bool:
    """Return whether an exception comes from a handler that has interrupted our code."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    frames = traceback.walk_tb(error.__traceback__ if error else None)
    return any(frame.f_code in codes for frame, _ in frames)
