"""What every launcher process does: die with the supervisor, tell it how ranks ended."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Literal, Self

from runners.connecting import secret
from runners.events import Event, Exited, Hello
from runners.processes import die_with_parent
from runners.reporter import Reporter

LOOPBACK = "127.0.0.1"
WORKER = [sys.executable, "-P", "-m", "runners.worker"]


class Parent:
    """A launcher's connection to its supervisor, which has started it unless it is not `direct`.

    `on_event` and `on_lost` are called from the reporting thread: see `Reporter`.
    """

    def __init__(
        self,
        direct: bool = True,
        *,
        role: Literal["launcher", "node", "task"] = "launcher",
        node: int = -1,
        rank: int = 0,
        local_rank: int = 0,
        on_event: Callable[[Event], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._direct = direct
        self._hello = Hello(
            role=role,
            token=secret(),
            pid=os.getpid(),
            host=socket.gethostname(),
            node=node,
            rank=rank,
            local_rank=local_rank,
            attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        )
        self._on_event, self._on_lost = on_event, on_lost

    def __enter__(self) -> Self:
        die_with_parent(int(os.environ["DISTRAIN_SUPERVISOR"]) if self._direct else None)
        address = os.environ["DISTRAIN_SOCKET"]
        self._reporter = Reporter(address, self._hello, self._on_lost, self._on_event)
        return self

    def say(self, event: Event) -> None:
        self._reporter.say(event)

    @property
    def address(self) -> str:
        """This host's address towards the supervisor; of a Unix socket the loopback's."""
        return self._reporter.own_address or LOOPBACK

    def exited(self, rank: int, pid: int, code: int) -> None:
        """Say that a rank ended; a negative code is a signal."""
        self.say(Exited(time=time.time(), rank=rank, pid=pid, code=code))

    def train(self, places: Mapping[int, Mapping[str, str]]) -> int:
        """Start ranks, each with variables of its own, and tell how each ends until none is left;
        1 where one failed.
        """
        ranks = {
            os.posix_spawn(sys.executable, WORKER, {**os.environ, **place}): rank
            for rank, place in places.items()
        }
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
