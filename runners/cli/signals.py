"""Signals to the command line, counted until the command can act on them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Self

from distrain.runners.system.processes import catch_user_signals

_SMALL_INITS = ("catatonit", "docker-init", "dumb-init", "podman-init", "tini")


class Signals:
    """Counts Ctrl-C, and keeps the number of a SIGTERM or SIGHUP, while its block is entered.

    SIGTERM is a Ctrl-C where a container ends with this process, and the run with it.
    SIGUSR1 and SIGUSR2 do nothing from the start of the block on.
    """

    def __init__(self) -> None:
        self.interrupts = 0
        self.ended_by: int | None = None  # SIGTERM, or SIGHUP of a closed terminal
        self.is_detached = False  # set it once another Ctrl-C changes nothing, also after the block

    def __enter__(self) -> Self:
        catch_user_signals()
        # Checked only here: if its parent ends later, the first process of a container becomes it.
        self._ends_container = _ends_container()
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            numbers.append(signal.SIGHUP)
        self._previous = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore what signals did; after a Ctrl-C, another one ends the process with code 130."""
        if self.is_detached:
            self._previous[signal.SIGINT] = signal.SIG_IGN
        elif self.interrupts:
            self._previous[signal.SIGINT] = lambda *_: os._exit(128 + signal.SIGINT)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT or (number == signal.SIGTERM and self._ends_container):
            self.interrupts += 1
        else:
            self.ended_by = number


def _ends_container() -> bool:
    """Return whether this is the first process of a container, or started by a small init of one.

    Such an init, as of `docker run --init`, passes signals on and ends with its child. A shell does
    not pass signals on, so one that arrives below a shell was sent to this process alone.
    """
    if os.getppid() == 1:
        with suppress(OSError):
            return Path("/proc/1/comm").read_text().strip() in _SMALL_INITS
    return os.getpid() == 1
