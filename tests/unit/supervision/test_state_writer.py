"""run.json as the supervisor writes it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distrain.runners.protocol.events import Finished
from distrain.runners.records.reader import Record
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.outcome import judge
from distrain.runners.supervision.state_writer import StateWriter
from tests.support.records import RunBuilder

HOUR_S = 3600.0


def test_the_duration_of_a_run_is_right_although_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunBuilder(tmp_path, world=1).steps(3)
    state = StateWriter(run.writer)
    state.set(started=time.time())
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + HOUR_S)
    ended = Evidence(
        world_size=1, launcher_code=0, finished={0: Finished(time=0.0, rank=0, step=3)}
    )
    state.finish(judge(ended))
    duration = Record(run.dir).summary()["duration_s"]
    assert duration is not None
    assert 0 <= duration < HOUR_S
