"""Stacks of the threads of this process, read by itself or by another process."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from distrain.runners.protocol.events.stacks import Frame, ThreadStack

MOST_THREADS = 32
MOST_FRAMES = 100  # innermost ones
# On Linux, this signal makes a rank write its stacks to a file in memory, of which other processes
# find the name in /proc. Nothing else is known to use a signal of this number.
DUMP_SIGNAL = getattr(signal, "SIGRTMIN", 0) + 9
DUMP_FILE = "distrain-stacks"
_is_readable = False


def read_stacks() -> list[ThreadStack]:
    """Return what all threads but the calling one are doing, the main thread first."""
    main = threading.main_thread().ident
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = {
        ident: ThreadStack(name=names.get(ident, f"thread {ident}"), frames=_frames(frame))
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    }
    return sorted(found.values(), key=lambda each: each.name != names[main])[:MOST_THREADS]


def main_cpu_s() -> float:
    """Return the CPU time of the main thread; 0 where the system does not tell."""
    ident = threading.main_thread().ident
    if ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def _frames(innermost: FrameType | None) -> list[Frame]:
    frames: list[Frame] = []
    frame = innermost
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        frames.append(Frame(code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return frames[::-1]


def make_stacks_readable() -> None:
    """Let DUMP_SIGNAL write the stacks, also while C code holds the lock of Python.

    The file has no place in a file system and ends with the process.
    """
    global _is_readable
    if _is_readable or not hasattr(os, "memfd_create"):
        return
    with suppress(OSError, RuntimeError):
        file = os.memfd_create(DUMP_FILE)
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)  # the reader empties it before each dump
        faulthandler.register(DUMP_SIGNAL, file, all_threads=True)
        _is_readable = True
