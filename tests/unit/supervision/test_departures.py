"""Hosts that leave a run after all have joined, and before any rank has connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.client import ServerAddresses
from distrain.runners.protocol.events import Hello, NodeFinished, Rendezvous, Welcome
from distrain.runners.records.folder import create_run
from distrain.runners.supervision import background
from distrain.runners.supervision.outcome import judge
from distrain.runners.supervision.supervisor import Supervisor
from tests.support.connections import SentEvents

ADDRESSES = ServerAddresses("", "tcp:10.0.0.1:4711")


class Hosts:
    """A run on two hosts, whose first one has joined."""

    def __init__(self, folder: Path) -> None:
        changes = {"devices": "cpu:1", "strategy": "ddp", "dist": {"nodes": 2}}
        config = RunConfig.from_dict(changes)
        self.run = Supervisor(create_run(folder, config, plan=plan_here(config), word="ddp"))
        self.coordinator = self.run.coordinator
        self.first = self.join(0)
        self.coordinator.received(self.first, Rendezvous(address="here:1"))

    def join(self, number: int = -1) -> SentEvents:
        connection = SentEvents(self.coordinator)
        name = f"h{abs(number)}"
        self.coordinator.received(connection, Hello(role="node", node=number, host=name))
        return connection

    def refuse(self, connection: SentEvents) -> None:
        """Leave as a host that cannot take part, for example for lack of devices."""
        self.coordinator.received(connection, NodeFinished())
        self.coordinator.disconnected(connection)


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_a_host_that_is_lost_while_ranks_start_has_ended_the_run(hosts: Hosts) -> None:
    """The ranks of the others would wait for it where they meet, and for nobody else."""
    hosts.coordinator.disconnected(hosts.join())
    assert hosts.coordinator.run.conditions.trouble.is_set()
    assert judge(hosts.coordinator.run.evidence).reason.startswith("h1 left the run: ")


def test_the_end_of_the_first_host_is_explained_by_its_launcher(hosts: Hosts) -> None:
    hosts.join()
    hosts.coordinator.disconnected(hosts.first)
    hosts.coordinator.run.evidence.launcher_code = 1
    assert judge(hosts.coordinator.run.evidence).reason.startswith("the launcher exited")


def test_another_host_takes_the_place_of_one_that_cannot_take_part(hosts: Hosts) -> None:
    hosts.refuse(hosts.join())
    assert not hosts.coordinator.run.conditions.trouble.is_set()
    other = hosts.join()
    assert isinstance(other.sent[-1], Welcome)
    hosts.coordinator.received(hosts.first, NodeFinished())
    assert not isinstance(hosts.first.sent[-1], NodeFinished)  # its ranks have not ended
    hosts.coordinator.received(other, NodeFinished())
    assert isinstance(hosts.first.sent[-1], NodeFinished)


def test_a_place_that_is_free_again_is_shown_until_ranks_connect(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "CHECK_S", 0.0)
    run = hosts.run

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0)

    def is_shown() -> bool:
        return any("1 of 2 hosts to join" in text for text in run.writer.state.waiting_for)

    async def follow() -> None:
        awaiting = asyncio.create_task(
            background.wait_for_hosts(
                run.config, run.plan, run.folder, run.state, run.coordinator, ADDRESSES
            )
        )
        await until(is_shown)
        second = hosts.join()
        await until(lambda: not is_shown())
        hosts.refuse(second)
        await until(lambda: is_shown() or awaiting.done())
        assert is_shown()
        hosts.join()
        await until(lambda: not is_shown())
        run.coordinator.received(SentEvents(run.coordinator), Hello(rank=0, world_size=2))
        await awaiting

    asyncio.run(follow())
    assert not run.coordinator.run.evidence.missing
