"""A launcher's connection to the supervisor, and the ranks that it starts as children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Self

from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import read_own_token
from distrain.runners.protocol.events import Event, Exited, Hello
from distrain.runners.protocol.reporter import Reporter
from distrain.runners.system.processes import catch_user_signals, die_with_parent
from distrain.runners.system.scratch import use_scratch_folder

LOOPBACK = "127.0.0.1"
# What a node agent prints when it is ended; some other failure is the cause.
SIGTERM_REASON = "ended by SIGTERM"


def termination(reason: str, number: signal.Signals = signal.SIGTERM) -> Exception:
    """Return what a signal handler raises to end the ranks; the elastic agent expects its own."""
    if agent := sys.modules.get("torch.distributed.elastic.multiprocessing.api"):
        return agent.SignalException(reason, number)  # type: ignore[no-any-return]
    return DistrainError(reason)


class SupervisorLink:
    """Connects a launcher process to the supervisor; the process dies with its parent.

    `is_child` tells whether the supervisor itself is the parent. `on_event` and `on_lost` are
    called from the reporting thread: see `Reporter`.
    """

    def __init__(
        self,
        is_child: bool = True,
        *,
        role: Literal["launcher", "node", "task"] = "launcher",
        node: int = -1,
        rank: int = 0,
        local_rank: int = 0,
        on_event: Callable[[Event], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._is_child = is_child
        self._hello = Hello(
            role=role,
            token=read_own_token(),
            pid=os.getpid(),
            host=socket.gethostname(),
            node=node,
            rank=rank,
            local_rank=local_rank,
            attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        )
        self._on_event = on_event
        self._on_lost = on_lost

    def __enter__(self) -> Self:
        die_with_parent(int(os.environ["DISTRAIN_SUPERVISOR"]) if self._is_child else None)
        catch_user_signals()
        use_scratch_folder()
        address = os.environ["DISTRAIN_SOCKET"]
        self._reporter = Reporter(address, self._hello, self._on_lost, self._on_event)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._reporter.close()
        if isinstance(error, SystemExit) and not error.code:
            raise DistrainError("the launcher has left its ranks") from error

    @property
    def address(self) -> str:
        """This host's address on the way to the supervisor; the loopback for a Unix socket."""
        return self._reporter.local_address or LOOPBACK

    def send(self, event: Event) -> None:
        self._reporter.send(event)

    def report_exit(self, rank: int, pid: int, code: int) -> None:
        """Report that a rank ended; a negative code is a signal."""
        self.send(Exited(time=time.time(), rank=rank, pid=pid, code=code))

    def run_ranks(
        self,
        command: list[str],
        variables: Mapping[int, Mapping[str, str]],
        *,
        forward_interrupts: bool = False,
    ) -> int:
        """Start ranks, each with its own variables, and report how each fails until none is left.

        With `forward_interrupts` a SIGINT is for the ranks, each of which has a process group, as
        torchrun gives it. Returns 1 if a rank failed, else 0.
        """
        group = 0 if forward_interrupts else os.getpgrp()  # a new one, or that of this process
        running = {
            os.posix_spawn(command[0], command, {**os.environ, **own}, setpgroup=group): rank
            for rank, own in variables.items()
        }
        if forward_interrupts:
            signal.signal(signal.SIGINT, lambda number, _: _signal_all(running, number))
        exit_code = 0
        while running:
            pid, status = os.wait()
            rank = running.pop(pid)
            if code := os.waitstatus_to_exitcode(status):
                self.report_exit(rank, pid, code)
                exit_code = 1
        return exit_code


def _signal_all(groups: Iterable[int], number: int) -> None:
    for group in [*groups]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
