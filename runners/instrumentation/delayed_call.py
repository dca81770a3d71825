"""A call that is made a moment later, unless it has become unnecessary."""

from __future__ import annotations

import threading
from collections.abc import Callable

from distrain.runners.instrumentation import problems


class DelayedCall:
    """Calls a function, in a thread of its own, `seconds` after `set` was called first."""

    def __init__(self, function: Callable[[], None], seconds: float) -> None:
        self._function = function
        self._seconds = seconds
        self._timer: threading.Timer | None = None

    def set(self) -> None:
        """Have the function called; a call that is set already stays as it is."""
        if self._timer is None:
            self._timer = threading.Timer(self._seconds, self._call)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:  # no more threads, or Python exits
                self._timer = None

    def cancel(self) -> None:
        """Do not call the function any more, until `set` is called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self) -> None:
        if self._timer is threading.current_thread():  # else it was cancelled, and set again
            self._timer = None
        try:
            self._function()
        except Exception:
            problems.print_first()
