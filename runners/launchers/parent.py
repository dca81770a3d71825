"""What every launcher process does: die with the supervisor, tell it how ranks ended."""

from __future__ import annotations

import os
import socket
import time
from typing import Self

from runners.events import Exited, Hello
from runners.processes import die_with_parent
from runners.reporter import Reporter

LOOPBACK = "127.0.0.1"


class Parent:
    """A launcher's connection to its supervisor."""

    def __enter__(self) -> Self:
        die_with_parent(int(os.environ["DISTRAIN_SUPERVISOR"]))
        hello = Hello(role="launcher", pid=os.getpid(), host=socket.gethostname())
        self._reporter = Reporter(os.environ["DISTRAIN_SOCKET"], hello)
        return self

    def exited(self, rank: int, pid: int, code: int) -> None:
        """Say that a rank ended; a negative code is a signal."""
        self._reporter.say(Exited(time=time.time(), rank=rank, pid=pid, code=code))

    def __exit__(self, *_: object) -> None:
        self._reporter.close()
