"""run.json as the supervisor writes it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.protocol.events import Finished, HostSample, Notice
from distrain.runners.records import salvage, writer
from distrain.runners.records.reader import Record
from distrain.runners.supervision import background
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.outcome import Outcome, judge
from distrain.runners.supervision.state_writer import StateWriter
from tests.support.records import RunBuilder

HOUR_S = 3600.0


def completed() -> Outcome:
    finished = {0: Finished(time=0.0, rank=0, step=3)}
    return judge(Evidence(world_size=1, launcher_code=0, finished=finished))


def test_the_duration_of_a_run_is_right_although_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunBuilder(tmp_path, world=1).steps(3)
    state = StateWriter(run.writer)
    state.set(started=time.time())
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + HOUR_S)
    state.finish(completed())
    duration = Record(run.dir).summary()["duration_s"]
    assert duration is not None
    assert 0 <= duration < HOUR_S


def test_a_supervisor_does_its_work_while_a_large_database_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunBuilder(tmp_path, world=1).steps(3)
    state = StateWriter(run.writer)
    has_begun, may_end = threading.Event(), threading.Event()

    def salvage_late(*given: Any) -> list[str]:
        has_begun.set()
        assert may_end.wait(60)
        return salvage.salvage(*given)

    monkeypatch.setattr(writer, "salvage", salvage_late)
    (run.dir / "metrics.db").unlink()

    async def restore() -> None:
        restoring = asyncio.create_task(state.restore_in_background())
        while not has_begun.is_set():
            await asyncio.sleep(0.01)
        run.writer.add(Notice(time=1.0, text="meanwhile", level="info"))
        committing = asyncio.create_task(state.commit_in_background())
        await asyncio.sleep(0.1)
        assert run.writer.pending
        may_end.set()
        await asyncio.gather(restoring, committing)

    asyncio.run(restore())
    state.commit()
    notices = sorted(event.text for _, event in Record(run.dir).events(kinds=("notice",)))
    assert notices[0] == "meanwhile"
    assert notices[1].startswith("metrics.db was deleted by somebody else")


def test_a_supervisor_does_its_work_while_another_program_locks_the_database(
    tmp_path: Path,
) -> None:
    run = RunBuilder(tmp_path, world=1).steps(3)
    state = StateWriter(run.writer)
    other = sqlite3.connect(run.dir / "metrics.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def commit() -> None:
        run.writer.add(Notice(time=1.0, text="meanwhile", level="info"))
        committing = asyncio.create_task(state.commit_in_background())
        await asyncio.sleep(0.1)
        assert run.writer.pending
        other.execute("ROLLBACK")
        await committing

    with closing(other):
        asyncio.run(commit())
    assert not run.writer.pending
    assert not Record(run.dir).state.reason


def test_readers_on_other_hosts_see_that_a_run_continues_of_which_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`report.sample_s` may be an hour, and a step too."""
    run = RunBuilder(tmp_path, world=1).steps(3)
    run.writer.set_state(host="elsewhere")
    files = [each for each in run.dir.iterdir() if each.is_file()]
    for each in files:
        os.utime(each, (1.0, 1.0))
    assert run.record.status == "failed"
    monkeypatch.setattr(background, "TOUCH_S", 0.01)

    async def touch() -> None:
        touching = asyncio.create_task(background.touch_regularly(StateWriter(run.writer)))
        while run.record.status != "running":
            await asyncio.sleep(0.01)
        touching.cancel()

    asyncio.run(asyncio.wait_for(touch(), 60))


def test_how_a_run_ended_is_written_although_a_measurement_cannot_be(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, world=1).steps(3)
    too_large = 2**64  # for an integer of SQLite
    run.writer.add(HostSample(time=1.0, cpu=1.0, memory_used=too_large, memory_total=1, load=1.0))
    StateWriter(run.writer).finish(completed())
    ended = Record(run.dir).state
    assert ended.status == "completed"
    assert "the last measurements are missing: " in ended.reason
    assert "too large" in ended.reason
