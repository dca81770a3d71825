"""A rank that joins its run by calling `distrain.init`: distrain has not started its process."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from distrain.runners.instrumentation.joining_reporter import JoiningReporter
from distrain.runners.instrumentation.position import PROCESS_VARIABLE, Position
from distrain.runners.instrumentation.rank_process import make_exit_failure, make_failure
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.requested_exit import RequestedExit
from distrain.runners.protocol.events import Failure, Finished, Hello, Phase


class JoinedRank:
    """This process as a rank, from `init` to `finish` or to its exit, which it reports by itself.

    `find` returns the address of the supervisor or observer, None while there is none. `on_lost` is
    called with a sentence if nothing can be recorded any more. `token` is required on TCP.
    """

    def __init__(
        self,
        position: Position,
        find: Callable[[], str | None],
        on_lost: Callable[[str], None],
        token: str,
    ) -> None:
        hello = Hello(
            token=token,
            rank=position.rank,
            local_rank=position.local_rank,
            world_size=position.world_size,
            pid=os.getpid(),
            host=socket.gethostname(),
            attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
            joined=True,
        )
        os.environ[PROCESS_VARIABLE] = str(os.getpid())
        self._rank = position.rank
        self._reporter = JoiningReporter(find, hello, on_lost)
        self._reporter.send(Phase(time=time.time(), rank=position.rank, phase="running"))
        self.session = RankSession(self._reporter, position.rank, world_size=position.world_size)

    @property
    def folder(self) -> Path | None:
        """The folder of the record that this process has begun, if it is known."""
        return None

    def end_at_exit(self, end: Callable[[BaseException | None], None]) -> None:
        """Call `end` when the process exits, with the exception that ends it."""
        if multiprocessing.parent_process() is None:
            requested = RequestedExit(lambda: self.session.activity)
            atexit.register(lambda: end(_ending_exception(requested)))
        else:  # children of multiprocessing do not call what atexit has registered
            # It is called on the way of the exception that ends the process.
            multiprocessing.util.Finalize(None, lambda: end(sys.exc_info()[1]), exitpriority=0)

    def end(self, error: BaseException | None) -> None:
        """Report how this rank ends, and wait until that is recorded, if it is soon."""
        session = self.session
        failure = self._failure(error)
        session.end(has_failed=failure is not None)
        finished = Finished(
            time=time.time(),
            rank=self._rank,
            step=session.steps or session.stop.calls,
            stopped=session.stop.is_stopped,
        )
        self._reporter.send(failure or finished)
        self._reporter.close()

    def _failure(self, error: BaseException | None) -> Failure | None:
        if error is None:
            return None
        if isinstance(error, SystemExit):
            return make_exit_failure(self._rank, error, self.session.steps)
        return make_failure(self._rank, error, self.session.steps)


def _ending_exception(requested: RequestedExit) -> BaseException | None:
    """Return the exception that ends the program; in a notebook or shell none does."""
    if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        return None
    return getattr(sys, "last_value", None) or requested.error
