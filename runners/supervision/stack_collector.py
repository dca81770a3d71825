"""Collects what all ranks of a run are doing, for the stall probe and for viewers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from distrain.runners.protocol.events import OutsideRequest, StackRequest, Stacks
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.membership import Membership
from distrain.runners.supervision.rank_connections import RankConnections
from distrain.runners.system.outside_stacks import read_ranks

ANSWER_S = 1.0  # a rank that runs Python code answers within this time
DISTANT_S = 3.0  # the same of a node agent that reads ranks


class _Request:
    """The answers to a request; `complete` is set once there is one of each rank in `expected`."""

    def __init__(self, expected: Collection[int]) -> None:
        self.answers: dict[int, Stacks] = {}
        self.expect(expected)

    def expect(self, ranks: Collection[int]) -> None:
        self.expected = set(ranks)
        self.complete = asyncio.Event()

    @property
    def missing(self) -> set[int]:
        return self.expected - self.answers.keys()

    async def wait(self, seconds: float) -> None:
        if self.missing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.complete.wait(), seconds)


class StackCollector:
    """Asks the connected ranks for their stacks, and has those of the others read from outside.

    Each host reads its own ranks: the supervisor those of this host, a node agent the others.
    """

    def __init__(self, ranks: RankConnections, membership: Membership) -> None:
        self._ranks = ranks
        self._membership = membership
        self._number = 0
        self._requests: dict[int, _Request] = {}
        self._reading = asyncio.Lock()  # two dumps of a process at a time would mix

    async def collect(self) -> dict[int, Stacks]:
        """Return the stacks of each rank, as far as they can be read."""
        self._number += 1
        number = self._number
        request = self._requests[number] = _Request(self._ranks.by_rank)
        self._ranks.broadcast(StackRequest(number=number))
        try:
            await request.wait(ANSWER_S)
            async with self._reading:
                self._ask_agents(number, request)
                here = self._ranks.processes
                silent = {rank: pid for rank, pid in here.items() if rank not in request.answers}
                for each in await asyncio.to_thread(read_ranks, silent):
                    request.answers[each.rank] = each
                await request.wait(DISTANT_S)
        finally:
            del self._requests[number]
        return request.answers

    def _ask_agents(self, number: int, request: _Request) -> None:
        """Have ranks on other hosts read that have not answered."""
        distant = self._ranks.distant_pids
        asked: dict[Connection, dict[int, int]] = {}
        for rank in sorted(request.missing & distant.keys()):
            if agent := self._membership.agent_of(rank):
                asked.setdefault(agent, {})[rank] = distant[rank]
        for agent, pids in asked.items():
            agent.send(OutsideRequest(number=number, pids=pids))
        request.expect([rank for pids in asked.values() for rank in pids])

    def add(self, answer: Stacks) -> None:
        """Take the answer of a rank or of its node agent; one that comes too late is dropped."""
        if request := self._requests.get(answer.number):
            request.answers[answer.rank] = answer
            if not request.missing:
                request.complete.set()
