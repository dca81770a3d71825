"""The session for which this process is observed, and the thread that trains.

Forked children, such as workers of a loader, and other threads are not observed. What hooks need in
every step are variables here, because a step may be a short one.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from distrain.runners.distributed.timing import Stamp
from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.loop_events import LoopEvents
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.training_loop import TrainingLoop

NO_THREAD = 0
thread = NO_THREAD
"""The observed thread; hooks compare it first, as there is a session only if there is a thread."""
session: RankSession = None  # type: ignore[assignment]
loop: TrainingLoop = None  # type: ignore[assignment]
events: LoopEvents = None  # type: ignore[assignment]
stamp: Callable[[], Stamp] = None  # type: ignore[assignment]
uses_cuda = False  # stamps are taken on a CUDA device


def begin(of: RankSession) -> None:
    """Observe the calling thread for a session."""
    global session, thread, loop, events
    if session is None:
        os.register_at_fork(after_in_child=end)
    session = of
    loop = session.loop
    events = loop.events
    _read_stamp()
    thread = threading.get_ident()


def use_cuda(device: int) -> None:
    """Take stamps from this device from now on."""
    loop.use_cuda(device)
    _read_stamp()


def _read_stamp() -> None:
    global stamp, uses_cuda
    stamp = loop.stamp
    uses_cuda = loop.timer.uses_cuda


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
        loop.replay()
    except Exception:
        problems.print_first()
