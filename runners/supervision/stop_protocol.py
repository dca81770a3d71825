"""How the ranks agree on the step after which all of them stop.

`report.stop_timeout_s` of the config is how long a stop may take; after that the run ends at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from distrain.runners.protocol.events import NEVER, Stop, StopAt
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.evidence import Evidence, RunConditions
from distrain.runners.supervision.rank_connections import RankConnections


class StopProtocol:
    """Stops all ranks after the same step, within `timeout_s` seconds.

    Every rank answers `Stop` with the step that it is in, and does not go beyond it until
    `StopAt` names the furthest of these steps, which all ranks can reach.

    The ranks of a script take part once each has announced that its program asks whether to stop.
    Otherwise, and if they do not stop in time, `on_interrupt` is called. If distrain did not start
    them (`only_asks`), they are not interrupted: the stop is taken back, and they train on.
    """

    def __init__(
        self,
        ranks: RankConnections,
        evidence: Evidence,
        conditions: RunConditions,
        timeout_s: float,
        on_interrupt: Callable[[], None],
        only_asks: bool = False,
    ) -> None:
        self._ranks = ranks
        self._evidence = evidence
        self._conditions = conditions
        self._timeout_s = timeout_s
        self._on_interrupt = on_interrupt
        self._only_asks = only_asks
        self._answers: dict[int, int] = {}
        self._supporting: set[int] = set()
        self._is_decided = False
        self._save = True
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, save: bool = True) -> None:
        """Ask all ranks to stop, with a checkpoint if `save`. Further calls change nothing."""
        if self._evidence.stop_requested:
            return
        self._evidence.stop_requested = True
        if self._evidence.is_script and not self.is_supported:
            self._interrupt()
            return
        self._save = save
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_s, self._on_timeout)
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
        if self._answers and not self._is_decided and self._remaining() <= self._answers.keys():
            self._is_decided = True
            last_step = max(self._answers.values()) + 1
            self._ranks.broadcast(StopAt(step=last_step, save=self._save))

    def _remaining(self) -> set[int]:
        """Return the ranks that have not ended."""
        return set(range(self._evidence.world_size)) - self._evidence.ended

    def reset(self, keep_timeout: bool) -> None:
        """Forget the answers of an earlier attempt, and its time limit unless `keep_timeout`."""
        self._answers.clear()
        self._is_decided = False
        self._supporting.clear()
        if self._timer and not keep_timeout:
            self._timer.cancel()

    def _interrupt(self) -> None:
        if self._only_asks:
            self._ranks.broadcast(StopAt(step=NEVER))
            self._answers.clear()
            self._is_decided = False
            self._evidence.stop_requested = False
        else:
            self._evidence.interrupted = True
            self._conditions.interrupt.set()
        self._on_interrupt()

    def _on_timeout(self) -> None:
        if self._only_asks and self._is_decided:
            return  # the ranks leave in the step that they have agreed on
        if self._evidence.stop_requested and not self._conditions.all_finished.is_set():
            if self._evidence.is_script:
                self._interrupt()
                return
            self._evidence.stop_overdue = True
            self._conditions.end_now.set()
