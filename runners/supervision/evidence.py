"""What the supervisor has observed of a run: the basis on which its outcome is decided."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Iterable
from typing import Any

import msgspec

from distrain.runners.distributed.secondary_failures import is_secondary_abort
from distrain.runners.protocol.events import Exited, Failure, Finished, Job, NonFinite
from distrain.runners.records.stall import Stall


class Evidence(msgspec.Struct, kw_only=True):
    """What was observed of the ranks of the current attempt, of their launcher and of stops.

    Times are seconds of the supervisor's monotonic clock, at arrival, unless stated otherwise.
    """

    world_size: int
    is_script: bool = False  # a program of the user's: its exit code decides how it ended
    watchdog_aborts: bool = False  # whether the backend's watchdog ends ranks with SIGABRT
    launcher_is_rank: bool = False  # and not a process that starts ranks
    ranks_joined: bool = False  # whether its ranks are processes that the program has started
    reports_exits: bool = False  # whether the launcher reports how each rank failed, then fails
    finished: dict[int, Finished] = {}
    failures: dict[int, tuple[float, Failure]] = {}
    disconnected: dict[int, float] = {}  # ranks that left without having finished or failed
    exits: dict[int, Exited] = {}
    steps: dict[int, int] = {}
    nonfinite: NonFinite | None = None
    hosts: dict[int, str] = {}  # of each rank, in a run on several hosts
    lost_agents: dict[str, float] = {}  # hosts whose node agent is gone
    agent_signals: dict[str, int] = {}  # that somebody has sent to these agents to end them
    unreachable: dict[str, float] = {}  # hosts that do not answer, since when (Unix seconds)
    missing: str = ""  # which hosts or ranks did not join in time
    mismatched: Stall | None = None  # the last one in which ranks wait in different collectives
    last_words: dict[int, str] = {}  # what ranks that aborted or exited have printed of it
    launcher_code: int | None = None
    launcher_log: str = ""
    launcher_killed: bool = False
    launcher_signal: int = 0  # that somebody has sent to the launcher to end it
    launcher_signalled: float = math.inf
    launcher_ended: bool = False  # by distrain: what ranks do from then on explains nothing
    outlived: list[int] = []  # ranks that ran when their program had exited with code 0
    program_failure: Failure | None = None  # of a script whose own processes are the ranks
    program_failed: float = math.inf  # when it did
    job: Job | None = None
    folder_lost: str = ""  # where the run's folder was
    queued: bool = False  # whether the run still waits in a queue: it has not started
    stop_requested: bool = False
    stop_requested_at: float = -math.inf  # also to end at once
    stop_origin: str = "on request"
    has_received_sigterm: bool = False  # the supervisor itself
    stopped_now: bool = False  # without a checkpoint
    stop_overdue: bool = False
    stop_delay: str = ""  # which rank an overdue stop has waited for, as far as stacks tell
    survivors: str = ""  # processes that SIGKILL has not ended
    interrupted: bool = False  # ranks of a script, which did not ask whether to stop

    @property
    def ended(self) -> set[int]:
        """The ranks that have finished, failed or disconnected."""
        return {*self.finished, *self.failures, *self.disconnected}

    @property
    def any_stopped(self) -> bool:
        """Whether a rank has finished because it was asked to stop."""
        return any(finished.stopped for finished in self.finished.values())

    @property
    def lost(self) -> list[int]:
        """The ranks that failed or disconnected, in order."""
        return sorted(self.failures.keys() | self.disconnected.keys())

    @property
    def reported(self) -> dict[int, float]:
        """The ranks that reported a failure, or that a watchdog ended, with the time."""
        failed = {rank: when for rank, (when, _) in self.failures.items()}
        aborted = {rank: self.disconnected[rank] for rank in self.aborted_by_watchdog}
        return aborted | failed

    @property
    def first_report(self) -> float:
        """When the first of those failures was reported; infinity if none was."""
        return min(self.reported.values(), default=math.inf)

    @property
    def first_rank_failed(self) -> float:
        """When the first rank failed or disconnected; infinity if none did."""
        failed = [when for when, _ in self.failures.values()]
        return min([*failed, *self.disconnected.values()], default=math.inf)

    @property
    def ended_by_signal(self) -> float:
        """When somebody has ended the launcher or a node agent; infinity if nobody has.

        What ranks do from then on is a consequence.
        """
        agents = [self.lost_agents.get(host, math.inf) for host in self.agent_signals]
        return min([self.launcher_signalled, *agents])

    @property
    def aborted_by_watchdog(self) -> set[int]:
        """The ranks that NCCL's or Horovod's watchdog aborted while they waited for another.

        What a rank has printed decides, if there is anything; a script may use NCCL too.
        """
        return {
            rank
            for rank in self.disconnected
            if self.exit_code(rank) == -signal.SIGABRT and self._was_waiting(rank)
        }

    def _was_waiting(self, rank: int) -> bool:
        """Return whether a rank that was aborted had waited for another one."""
        words = self.last_words.get(rank)
        return is_secondary_abort(words) if words else self.watchdog_aborts

    @property
    def crashes(self) -> dict[int, float]:
        """The ranks that ended without a report and not because of a stop, with the time."""
        return {
            rank: when
            for rank, when in self.disconnected.items()
            if self.exit_code(rank) not in (None, 0, -signal.SIGTERM, -signal.SIGINT)
            and rank not in self.aborted_by_watchdog
        }

    @property
    def finished_before_stop(self) -> bool:
        """Whether all ranks have finished before a stop had reached any of them."""
        was_stopped = self.any_stopped or self.interrupted or self.stopped_now
        return len(self.finished) == self.world_size and not was_stopped

    @property
    def failed_before_stop(self) -> bool:
        """Whether a rank had failed by itself when somebody asked the run to stop.

        A program whose own processes are the ranks may have handled that and gone on.
        """
        by_itself = [when for when, failure in self.failures.values() if not failure.secondary]
        # A scheduler may have killed the ranks, to queue the job again; the exit code of a launcher
        # that is the rank may be that of the stop.
        if self.job is None and not self.launcher_is_rank:
            by_itself += self.crashes.values()
        first = min(by_itself, default=math.inf)
        return not self.ranks_joined and first < self.stop_requested_at

    @property
    def all_terminated(self) -> bool:
        """Whether supervisor and launcher have received SIGTERM, as all processes do at a shutdown.

        distrain may have ended the launcher afterwards, while that waited for its ranks.
        """
        ended = self.launcher_code == -signal.SIGTERM and not self.launcher_ended
        return self.has_received_sigterm and (self.launcher_signal == signal.SIGTERM or ended)

    def exit_code(self, rank: int) -> int | None:
        """Return the exit code of a rank, negative for a signal; None if it is unknown."""
        return self.exits[rank].code if rank in self.exits else None

    @property
    def mismatch(self) -> str:
        """Which different collectives the ranks wait in; "" once any has finished another step."""
        stall = self.mismatched
        if stall is None or any(self.steps.get(at.rank, 0) > at.step for at in stall.positions):
            return ""
        return stall.mismatch

    def note_stall(self, stall: Stall) -> None:
        """Keep a stall in which ranks wait in different collectives.

        Later ones, of ranks whose collectives have timed out, do not replace it.
        """
        if stall.mismatch:
            self.mismatched = stall

    def reopen(self, ranks: Iterable[int]) -> None:
        """Forget how these ranks have ended: their program has started them again."""
        self.mismatched = None
        for rank in ranks:
            self.finished.pop(rank, None)
            self.failures.pop(rank, None)
            self.disconnected.pop(rank, None)

    def reset(self, **kept: Any) -> None:
        """Forget what was observed of earlier attempts, apart from the values in `kept`."""
        fresh = Evidence(
            world_size=self.world_size,
            is_script=self.is_script,
            watchdog_aborts=self.watchdog_aborts,
            launcher_is_rank=self.launcher_is_rank,
            reports_exits=self.reports_exits,
            **kept,
        )
        for name in self.__struct_fields__:
            setattr(self, name, getattr(fresh, name))


class RunConditions:
    """Conditions that a task of the supervisor can wait for.

    `trouble` is set by the first sign that ranks fail, `all_finished` once every rank has left
    the training loop, `interrupt` when they are to be interrupted as by Ctrl-C in a terminal,
    `end_now` when everything is to be ended without further waiting.
    """

    def __init__(self) -> None:
        self.trouble = asyncio.Event()
        self.all_finished = asyncio.Event()
        self.interrupt = asyncio.Event()
        self.end_now = asyncio.Event()

    def reset_for_attempt(self) -> None:
        self.trouble.clear()
        self.all_finished.clear()
