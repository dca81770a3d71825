"""The threads in which screens read and write, and the end of the app while one of them hangs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Timer

MOST_THREADS = 256  # up to two for each open screen, as long as it is open
PATIENCE_S = 2.0
WAITING = "distrain-tui: waiting for reads and writes in progress; Ctrl-C quits at once"


class ScreenThreads(ThreadPoolExecutor):
    """Threads that end before the app does, so that what they write is complete.

    A disk or a driver that does not answer holds them for as long as it likes. The terminal is
    restored by then; without a sentence it would be silent.
    """

    def __init__(self) -> None:
        # By default there are four threads more than cores: too few for some screens, which would
        # stay empty.
        super().__init__(MOST_THREADS, thread_name_prefix="screen")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        notice = Timer(PATIENCE_S, print, [WAITING], {"file": sys.__stderr__, "flush": True})
        notice.daemon = True
        notice.start()
        super().shutdown(wait, cancel_futures=cancel_futures)
        notice.cancel()
