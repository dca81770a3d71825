"""A stop of a run that distrain only observes: it asks, and takes back what was not answered."""

from __future__ import annotations

import asyncio

import pytest

from distrain.runners.protocol.events import NEVER, Event, Stop, StopAt
from distrain.runners.supervision.evidence import Evidence, RunConditions
from distrain.runners.supervision.rank_connections import RankConnections
from distrain.runners.supervision.stop_protocol import StopProtocol


class Ranks(RankConnections):
    """Collects what all ranks are sent."""

    def __init__(self) -> None:
        super().__init__("")
        self.sent: list[Event] = []

    def broadcast(self, event: Event) -> None:
        self.sent.append(event)


@pytest.mark.parametrize(
    ("answering", "sent"),
    [([0, 1], [Stop(), StopAt(step=8)]), ([0], [Stop(), StopAt(step=NEVER)])],
)
def test_only_a_stop_without_all_answers_is_taken_back(
    answering: list[int], sent: list[Event]
) -> None:
    ranks, evidence, failures = Ranks(), Evidence(world_size=2, is_script=True), list[str]()

    async def stop() -> None:
        on_interrupt = lambda: failures.append("given up")  # noqa: E731
        protocol = StopProtocol(ranks, evidence, RunConditions(), 0.02, on_interrupt, True)
        for rank in (0, 1):
            protocol.note_support(rank)
        protocol.begin()
        for rank in answering:
            protocol.add_answer(rank, 6 + rank)
        await asyncio.sleep(0.1)  # the ranks may save a checkpoint for longer than the time limit

    asyncio.run(stop())
    assert ranks.sent == sent
    assert evidence.stop_requested == (not failures) == (len(answering) == 2)
