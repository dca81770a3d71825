"""How a program has asked to exit: an exit handler cannot see that it was `sys.exit`."""

from __future__ import annotations

import builtins
import sys
from _sitebuiltins import Quitter
from collections.abc import Callable
from threading import current_thread, main_thread
from typing import Any, NoReturn


class RequestedExit:
    """Takes the place of `sys.exit`, `exit` and `quit`, and remembers their last call.

    A program may catch what it raises, and go on. So a call counts as long as `activity`, which is
    read at the call and later, stays the same.
    """

    def __init__(self, activity: Callable[[], object]) -> None:
        self._activity = activity
        self._before = activity()
        self._error: SystemExit | None = None
        earlier = getattr(sys.exit, "__self__", None)  # that of a run which has ended
        self._exit: Callable[[Any], NoReturn] = (
            earlier._exit if isinstance(earlier, RequestedExit) else sys.exit
        )
        sys.exit = self._remember
        for name in ("exit", "quit"):
            if isinstance(quitter := getattr(builtins, name, None), Quitter):  # not with python -S
                setattr(builtins, name, _NotedQuitter(quitter, self._note))

    def _remember(self, status: object = None, /) -> NoReturn:
        self._note(status)
        self._exit(status)

    def _note(self, status: object) -> None:
        if current_thread() is main_thread():
            self._error = SystemExit(status)
            if status not in (None, 0):
                self._error.__context__ = sys.exc_info()[1]  # as if it had been raised
            self._before = self._activity()

    @property
    def error(self) -> SystemExit | None:
        """The exception that the program has exited with; None without one."""
        return self._error if self._activity() == self._before else None


class _NotedQuitter(Quitter):
    """`exit` or `quit` of Python's module site, which do not call `sys.exit`."""

    def __init__(self, quitter: Quitter, note: Callable[[object], None]) -> None:
        super().__init__(quitter.name, quitter.eof)
        self._note = note

    def __call__(self, code: Any = None) -> NoReturn:
        self._note(code)
        super().__call__(code)
