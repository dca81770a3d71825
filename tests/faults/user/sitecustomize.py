"""Lets a signal make any Python process of a run fail as a bug in it would.

Python imports this module at its start, because its folder is in PYTHONPATH.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time

RAISE = signal.SIGRTMIN + 3
EXIT = signal.SIGRTMIN + 4
EXHAUST = signal.SIGRTMIN + 5
ROOM_BYTES = 16 << 20
BLOCK_BYTES = 4 << 20


def _raise(*_: object) -> None:
    raise RuntimeError("an injected error")


def _exit(*_: object) -> None:
    sys.exit(0)


def _exhaust(*_: object) -> None:
    """Leave hardly any memory, and need more."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, resource.RLIM_INFINITY))
    blocks = []
    while True:
        blocks.append(bytearray(BLOCK_BYTES))


def _set_clock(offset_file: str) -> None:
    """Let this process see another time of day: the true one and the seconds in a file."""
    true_time = time.time

    def shifted() -> float:
        with open(offset_file) as file:
            return true_time() + float(file.read() or 0)

    time.time = shifted


if __name__ == "sitecustomize":  # and not imported for the numbers
    if "FAULT_CLOCK" in os.environ:
        _set_clock(os.environ["FAULT_CLOCK"])
    signal.signal(RAISE, _raise)
    signal.signal(EXIT, _exit)
    signal.signal(EXHAUST, _exhaust)
