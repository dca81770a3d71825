"""Stops that are taken back because a rank does not answer, and stops that have to wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import (
    NEVER,
    Event,
    Hello,
    Phase,
    Stop,
    StopAt,
    Stopping,
    StopSupport,
)
from distrain.runners.records.folder import create_run
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.system.devices import Device
from tests.support.connections import SentEvents


def make_coordinator(folder: Path, config: RunConfig, observed: bool = False) -> Coordinator:
    """Return the coordinator of a run with two ranks."""
    devices = [Device(kind="cpu", index=0)]
    plan = Plan(world_size=2, devices=devices, threads=1, backend="gloo", observed=observed)
    writer = RecordWriter(create_run(folder, config, plan=plan, word="x"))
    return Coordinator(LiveRun(config, plan, writer, writer.set_state, "here", None))


@pytest.mark.parametrize(
    ("answering", "sent"),
    [([0, 1], [Stop(), StopAt(step=8)]), ([0], [Stop(), StopAt(step=NEVER)])],
)
def test_only_a_stop_without_all_answers_is_taken_back(
    answering: list[int], sent: list[Event], tmp_path: Path
) -> None:
    changes = {"script": {"path": "train.py"}, "report": {"stop_timeout_s": 0.02}}
    coordinator = make_coordinator(tmp_path, RunConfig.from_dict(changes), observed=True)
    ranks = [SentEvents(coordinator) for _ in range(2)]

    async def stop() -> None:
        for rank, connection in enumerate(ranks):
            coordinator.received(connection, Hello(rank=rank, world_size=2, joined=True))
            coordinator.received(connection, StopSupport(rank=rank))
        coordinator.received(SentEvents(coordinator), Stop())
        for rank in answering:
            coordinator.received(ranks[rank], Stopping(rank=rank, step=6 + rank))
        await asyncio.sleep(0.1)  # the ranks may save a checkpoint for longer than the time limit

    asyncio.run(stop())
    assert [rank.sent for rank in ranks] == [sent, sent]
    is_stopped = len(answering) == 2
    assert coordinator.run.is_stopping == coordinator.run.evidence.stop_requested == is_stopped


@pytest.mark.parametrize(
    ("phases", "is_forced"),
    [
        (["evaluating", "evaluating"], False),
        (["saving", "saving"], False),
        (["averaging", "evaluating"], False),
        (["training", "saving"], True),
    ],
)
def test_a_stop_is_not_forced_while_all_ranks_evaluate_or_save(
    phases: list[Any], is_forced: bool, tmp_path: Path
) -> None:
    # An evaluation, as the first one of a run, may also take longer than `stall_s`.
    config = RunConfig.from_dict({"report": {"stop_timeout_s": 0.02, "stall_s": 0.01}})
    coordinator = make_coordinator(tmp_path, config)
    ranks = [SentEvents(coordinator) for _ in range(2)]
    end_now = coordinator.run.conditions.end_now

    async def stop() -> None:
        for rank, phase in enumerate(phases):
            coordinator.received(ranks[rank], Hello(rank=rank, world_size=2))
            coordinator.received(ranks[rank], Phase(time=0.0, rank=rank, phase=phase))
        coordinator.control.stop()
        await asyncio.sleep(0.1)
        assert end_now.is_set() == is_forced
        # a rank that does not leave afterwards is not waited for
        coordinator.received(ranks[0], Phase(time=0.0, rank=0, phase="training"))
        await asyncio.wait_for(end_now.wait(), 10)

    asyncio.run(stop())


def test_a_stop_has_its_whole_time_after_an_evaluation(tmp_path: Path) -> None:
    limit_s = 0.2
    config = RunConfig.from_dict({"report": {"stop_timeout_s": limit_s}})
    plan = Plan(world_size=1, devices=[Device(kind="cpu", index=0)], threads=1, backend="gloo")
    writer = RecordWriter(create_run(tmp_path, config, plan=plan, word="ddp"))
    coordinator = Coordinator(LiveRun(config, plan, writer, writer.set_state, "here", None))
    rank = SentEvents(coordinator)
    end_now = coordinator.run.conditions.end_now
    was_forced: list[bool] = []

    async def stop() -> None:
        coordinator.received(rank, Hello(rank=0, world_size=1))
        coordinator.received(rank, Phase(time=0.0, rank=0, phase="evaluating"))
        coordinator.control.stop()
        call_later = asyncio.get_running_loop().call_later
        left = Phase(time=0.0, rank=0, phase="training")
        call_later(1.9 * limit_s, coordinator.received, rank, left)
        call_later(2.6 * limit_s, lambda: was_forced.append(end_now.is_set()))
        await asyncio.wait_for(end_now.wait(), 10)

    asyncio.run(stop())
    assert was_forced == [False]
