"""How the ranks agree on the step after which all of them stop, and how long that may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from distrain.runners.protocol.events import NEVER, Stop, StopAt
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.system.processes import is_suspended

PAUSES = {"averaging", "evaluating", "saving"}  # phases in which ranks do not stop
CHECK_S = 1.0


class StopProtocol:
    """Stops all ranks after the same step, within `report.stop_timeout_s` seconds.

    While all of them average, evaluate or save, they have longer, because to end them would lose
    the steps since the last checkpoint; the limit begins again when the first one leaves that
    phase. The ranks of a script count as saving from the answer to stop until they finish further
    steps. A stop by a scheduler has no limit: it ends the ranks itself.

    Every rank answers `Stop` with the step that it is in, and does not go beyond it until
    `StopAt` names the furthest of these steps, which all ranks can reach.

    The ranks of a script take part once each has announced that its program asks whether to stop.
    Otherwise, and if they do not stop in time, `on_unanswered` is called. Ranks that have finished
    by themselves are left alone.
    """

    def __init__(self, run: LiveRun, on_unanswered: Callable[[], None]) -> None:
        self._run = run
        self._ranks = run.ranks
        self._evidence = run.evidence
        self._conditions = run.conditions
        self._timeout_s = run.config.report.stop_timeout_s
        self._on_unanswered = on_unanswered
        self._answers: dict[int, int] = {}
        self._supporting: set[int] = set()
        self.is_decided = False
        self._save = True
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0  # the limit, by the clock of the loop
        self._were_paused = False

    def begin(self, save: bool = True) -> None:
        """Ask all ranks to stop, with a checkpoint if `save`. Further calls change nothing."""
        if self._evidence.stop_requested:
            return
        self._evidence.stop_requested = True
        # Ranks that are processes of the program itself may go on after they have finished.
        is_over = self._run.is_complete and not self._ranks.joined
        can_answer = self.is_supported and self._remaining()
        if self._evidence.is_script and not (is_over or can_answer):
            self._on_unanswered()
            return
        self._save = save
        self._start_timer()
        self._ranks.broadcast(Stop())

    @property
    def is_supported(self) -> bool:
        """Whether the program asks whether to stop, on every rank that has not ended."""
        return self._remaining() <= self._supporting

    def note_support(self, rank: int) -> None:
        """Note that the program of a rank asks after each step whether to stop."""
        self._supporting.add(rank)

    def ask_if_begun(self, connection: Connection) -> None:
        """Ask a rank that connects during a stop to take part in it."""
        if self._evidence.stop_requested and not self._conditions.interrupt.is_set():
            connection.send(Stop())

    def add_answer(self, rank: int, step: int) -> None:
        """Note the step that a rank is in; once all have answered, send where to stop."""
        self._answers[rank] = step
        self.decide()

    def decide(self) -> None:
        """Send where to stop, once every rank that has not ended has answered."""
        if self._answers and not self.is_decided and self._remaining() <= self._answers.keys():
            self.is_decided = True
            last_step = max(self._answers.values()) + 1
            self._ranks.broadcast(StopAt(step=last_step, save=self._save))

    def _remaining(self) -> set[int]:
        """Return the ranks that have not ended."""
        return set(range(self._evidence.world_size)) - self._evidence.ended

    def reset(self, keep_timeout: bool) -> None:
        """Forget the answers of an earlier attempt, and its time limit unless `keep_timeout`."""
        self._answers.clear()
        self.is_decided = False
        self._supporting.clear()
        if self._timer and not keep_timeout:
            self._timer.cancel()

    def take_back(self) -> None:
        """Let the ranks train on, as if they had not been asked to stop."""
        self._ranks.broadcast(StopAt(step=NEVER))
        self._answers.clear()
        self.is_decided = False
        self._evidence.stop_requested = False

    def _start_timer(self) -> None:
        self._until = asyncio.get_running_loop().time() + self._timeout_s
        self._were_paused = False
        self._check_later(self._timeout_s)

    def _check_later(self, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(CHECK_S, limit_s), self._check)

    def _check(self) -> None:
        """Force the stop at its limit, which begins again once the ranks have left a pause."""
        if not self._evidence.stop_requested or self._conditions.all_finished.is_set():
            return
        now = asyncio.get_running_loop().time()
        were_paused, self._were_paused = self._were_paused, self._are_paused
        if were_paused and not self._were_paused:
            self._until = now + self._timeout_s
        if now < self._until:
            self._check_later(self._until - now)
        else:
            self._on_timeout()

    def _on_timeout(self) -> None:
        if self._may_take_longer():
            self._check_later(self._timeout_s)
        elif self._evidence.is_script:
            self._on_unanswered()
        elif self._run.scheduler and not self._run.is_stopping:
            # The scheduler ends ranks that it wants to stop, and may start them again much later.
            self._start_timer()  # somebody may ask the run to stop meanwhile
        else:
            self._evidence.stop_overdue = True
            self._conditions.end_now.set()

    @property
    def _are_paused(self) -> bool:
        phases = set(map(self._run.stall_watch.phase_of, self._remaining()))
        return bool(phases) and phases <= PAUSES

    def _may_take_longer(self) -> bool:
        """Return whether all ranks evaluate or save, and none of them hangs as far as is known.

        Rank 0 may write for as long as the other ranks wait for it, and so may a first evaluation
        take: it is not known how long evaluations take.
        """
        watch, ranks = self._run.stall_watch, self._remaining()
        if not self._are_paused or any(map(is_suspended, self._ranks.pids.values())):
            return False
        are_saving = {watch.phase_of(rank) for rank in ranks} == {"saving"}
        if are_saving or not all(map(watch.knows_duration, ranks)):
            return max(map(watch.pause_of, ranks)) < self._run.config.dist.leader_timeout_s
        return ranks.isdisjoint(watch.stalled())
