"""The session for which this process is observed, and the thread that trains.

Forked children, such as workers of a loader, and other threads are not observed.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.rank_session import RankSession

NO_THREAD = 0
session: RankSession = None  # type: ignore[assignment]  # see `thread`
thread = NO_THREAD
"""The observed thread, which has a session; hooks compare it first."""


def begin(of: RankSession) -> None:
    """Observe the calling thread for a session."""
    global session, thread
    if session is None:
        os.register_at_fork(after_in_child=end)
    session = of
    thread = threading.get_ident()


def end() -> None:
    """Observe this process no longer."""
    global thread
    thread = NO_THREAD


def followed_by(note: Callable[..., None], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same; while a thread is observed, `note` gets its arguments.

    It is a plain function, unlike one of wrapt's, so it can still be pickled by its name.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        returned = function(*args, **kwargs)
        if thread != NO_THREAD:
            try:
                note(*args, **kwargs)
            except Exception:
                problems.print_first()
        return returned

    return call


def replay() -> None:
    """Replay what was noted, because it is much."""
    try:
        session.loop.replay()
    except Exception:
        problems.print_first()
