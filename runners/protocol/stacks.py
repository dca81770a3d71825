"""Stacks of the threads of this process."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from distrain.runners.protocol.events.stacks import Frame, ThreadStack

MOST_THREADS = 32
MOST_FRAMES = 100  # innermost ones


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


def _frames(innermost: FrameType | None) -> list[Frame]:
    frames: list[Frame] = []
    frame = innermost
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        frames.append(Frame(code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return frames[::-1]
