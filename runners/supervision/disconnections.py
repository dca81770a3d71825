"""What the end of a connection, for example of a killed rank, means for a run.

Here it is only recorded: `outcome` decides who failed first, `launcher_process` how long the other
ranks live.
"""

from __future__ import annotations

import time

from distrain.runners import formatting
from distrain.runners.protocol.events import Requeue
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.membership import Departure


class DisconnectionHandler:
    """Notes lost ranks, lost node agents and hosts that do not answer."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._evidence = run.evidence
        self._conditions = run.conditions

    def handle(self, connection: Connection) -> None:
        """Remove a connection that has ended and note what was lost with it."""
        if connection is self._run.launcher:
            self._run.launcher = None  # another process may take its place
        all_finished = self._conditions.all_finished.is_set()
        departure = self._run.membership.remove(connection)
        host = departure.host if departure else connection.host
        lost_rank = self._note_departure(departure) if departure else None
        if host and connection.timed_out and not all_finished:
            self._note_unreachable(host, connection.last_received)
        rank = self._run.ranks.remove(connection)
        if rank is None:
            rank = lost_rank
        if rank is None or rank in self._evidence.finished or rank in self._evidence.failures:
            return
        self._evidence.disconnected.setdefault(rank, time.monotonic())
        if not self._evidence.is_script:  # which may close its files and go on
            self._conditions.trouble.set()

    def _note_departure(self, departure: Departure) -> int | None:
        """Note that a node agent has left too early; return its rank where it has a single one.

        Another host may take the place of one that leaves before all have joined, or that finds
        that it cannot take part. Later it would be missing where the ranks meet. Once the launcher
        has been ended, the agents are ended with it.
        """
        if not departure.is_early or self._evidence.launcher_ended:
            return None
        if self._run.plan.tasks:
            self._conditions.trouble.set()  # the agent of rank 0 waits for all others
            return departure.rank
        # Before ranks have connected, the exit of the first host's launcher explains more.
        if not departure.is_leader or self._has_begun:
            self._note_lost_agent(departure.host)
        return None

    def note_agent_signal(self, host: str, number: int) -> None:
        """Note that somebody has ended the node agent of another host, which ends its ranks."""
        self._evidence.agent_signals.setdefault(host, number)
        self._note_lost_agent(host)

    @property
    def _has_begun(self) -> bool:
        return self._run.plan.scheduled or self._run.ranks.any_has_greeted

    def _note_lost_agent(self, host: str) -> None:
        if not self._conditions.all_finished.is_set():
            self._evidence.lost_agents.setdefault(host, time.monotonic())
            self._conditions.trouble.set()

    def _note_unreachable(self, host: str, since: float) -> None:
        if host not in self._evidence.unreachable:
            self._evidence.unreachable[host] = since
            self._run.notice(f"{host} has not answered since {formatting.time_of_day(since)}")
            # The scheduler may notice much later, or never; until then the job keeps its nodes.
            if self._run.is_requeued_by_scheduler and self._run.launcher:
                self._run.launcher.send(Requeue())
        self._conditions.trouble.set()
