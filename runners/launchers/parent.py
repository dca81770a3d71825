"""What every launcher process does: die with the supervisor, tell it how ranks ended."""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Self

from runners.connecting import secret
from runners.events import Exited, Hello
from runners.processes import die_with_parent
from runners.reporter import Reporter

LOOPBACK = "127.0.0.1"
WORKER = [sys.executable, "-P", "-m", "runners.worker"]


class Parent:
    """A launcher's connection to its supervisor, which has started it unless it is not `direct`."""

    def __init__(self, direct: bool = True) -> None:
        self._direct = direct

    def __enter__(self) -> Self:
        die_with_parent(int(os.environ["DISTRAIN_SUPERVISOR"]) if self._direct else None)
        hello = Hello(role="launcher", token=secret(), pid=os.getpid(), host=socket.gethostname())
        self._reporter = Reporter(os.environ["DISTRAIN_SOCKET"], hello)
        return self

    def exited(self, rank: int, pid: int, code: int) -> None:
        """Say that a rank ended; a negative code is a signal."""
        self._reporter.say(Exited(time=time.time(), rank=rank, pid=pid, code=code))

    def watch(self, ranks: dict[int, int]) -> int:
        """Tell how each child, a rank by its pid, ends until none is left; 1 where one failed."""
        failed = 0
        while ranks:
            pid, status = os.wait()
            rank = ranks.pop(pid)
            if code := os.waitstatus_to_exitcode(status):
                self.exited(rank, pid, code)
                failed = 1
        return failed

    def __exit__(self, *_: object) -> None:
        self._reporter.close()
