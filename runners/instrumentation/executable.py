"""Runs a program that is not Python: as a child of the rank's process, which waits for it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import NoReturn

from distrain.runners.system.processes import die_with_parent

FORWARDED = (signal.SIGINT, signal.SIGTERM)
ORPHANED = signal.SIGUSR2


class Executable:
    """A running program, with its own process group. It dies with this process.

    Signals go to the whole group, as those of a terminal do: shells do not pass them on.
    """

    def __init__(self, path: str, arguments: Sequence[str]) -> None:
        # Before this process has a second thread: preexec_fn is not safe with several.
        self._process = subprocess.Popen(
            [path, *arguments],
            process_group=0,
            preexec_fn=die_with_parent,
        )
        for number in FORWARDED:
            signal.signal(number, self._forward)

    def wait(self) -> int:
        """Return the exit code; a negative one is a signal."""
        return self._process.wait()

    def kill(self) -> NoReturn:
        """Kill the whole group, and end this process."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        os._exit(1)

    def end_with_parent(self) -> None:
        """Call `kill` when the parent of this process dies. SIGKILL would spare the group."""
        parent = os.getppid()

        def on_signal(*_: object) -> None:
            if os.getppid() != parent:  # a scheduler sends this signal too
                self.kill()

        signal.signal(ORPHANED, on_signal)
        die_with_parent(number=ORPHANED)

    def _forward(self, number: int, _: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)
