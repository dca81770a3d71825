"""Collects what all ranks of a run are doing, for the stall probe and for viewers."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from distrain.runners.protocol.events import StackRequest, Stacks, ThreadStack
from distrain.runners.supervision.rank_connections import RankConnections
from distrain.runners.system.outside_stacks import read_outside

AT_ONCE = 16  # processes that are read from outside
ANSWER_S = 1.0  # a rank that runs Python code answers within this time


class _Request:
    """The answers to a request; `complete` is set once there is one of each rank in `expected`."""

    def __init__(self, expected: set[int]) -> None:
        self.expected = expected
        self.answers: dict[int, Stacks] = {}
        self.complete = asyncio.Event()


class StackCollector:
    """Asks the connected ranks for their stacks, and reads those of the others from outside."""

    def __init__(self, ranks: RankConnections) -> None:
        self._ranks = ranks
        self._number = 0
        self._requests: dict[int, _Request] = {}
        self._reading = asyncio.Lock()  # two dumps of a process at a time would mix

    async def collect(self) -> dict[int, Stacks]:
        """Return the stacks of each rank; of one on another host only what it answers."""
        self._number += 1
        number = self._number
        request = self._requests[number] = _Request(set(self._ranks.by_rank))
        self._ranks.broadcast(StackRequest(number=number))
        if request.expected:
            with suppress(TimeoutError):
                await asyncio.wait_for(request.complete.wait(), ANSWER_S)
        del self._requests[number]
        pids = self._ranks.processes
        silent = {rank: pid for rank, pid in pids.items() if rank not in request.answers}
        async with self._reading:
            found = await asyncio.to_thread(_read_all, silent)
        for rank, threads in found.items():
            request.answers[rank] = Stacks(
                time=time.time(), rank=rank, threads=threads, is_from_outside=True
            )
        return request.answers

    def add(self, answer: Stacks) -> None:
        """Take the answer of a rank; one that comes too late is dropped."""
        if request := self._requests.get(answer.number):
            request.answers[answer.rank] = answer
            if request.answers.keys() >= request.expected:
                request.complete.set()


def _read_all(pids: dict[int, int]) -> dict[int, list[ThreadStack]]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = zip(pids, pool.map(read_outside, pids.values()), strict=True)
        return {rank: threads for rank, threads in found if threads}
