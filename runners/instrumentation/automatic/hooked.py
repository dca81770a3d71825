"""The session for which this process is observed, and the thread that trains.

Forked children, such as workers of a loader, and other threads are not observed.
"""

from __future__ import annotations

import os
import threading

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
