"""What a bench records while it runs its rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.bench import rounds
from distrain.runners.bench.folder import RUNS
from distrain.runners.bench.state import Measurement
from distrain.runners.errors import DistrainError
from tests.support.benches import make_bench
from tests.support.records import RunBuilder

COMMITS = ("a", "a", "b", "c")  # of the rounds


def make_measurement(name: str, number: int, run_id: str) -> Measurement:
    return Measurement(
        candidate=name,
        round=number,
        run_id=run_id,
        rate=5000.0,
        seconds=5.0,
        warmup_s=1.0,
        steady=True,
        duration_s=6.0,
        phases={},
    )


def test_a_bench_with_one_candidate_left_does_not_state_a_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path, {"single": 5000.0, "ddp": 9000.0}, rounds=0)

    def measure(_: object, name: str, number: int, *, folder: Path, **__: Any) -> Measurement:
        if name == "ddp":
            raise DistrainError("no memory")
        run = RunBuilder(folder, name).steps(5).end("stopped")
        return make_measurement(name, number, run.id)

    monkeypatch.setattr(rounds, "measure", measure)
    monkeypatch.setattr(rounds, "find_obstacles_of_any", lambda *_: [])
    process = rounds.Rounds(bench.dir)
    process.begin(queue=False)
    process.run()
    assert bench.state.reason == "the rate of single is known within ±2 %"
    assert bench.state.excluded == {"ddp": "failed in round 1: no memory"}


def test_code_that_changes_while_a_bench_runs_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, because a script may write to files that git tracks."""
    bench = make_bench(tmp_path, {"single": 5000.0}, rounds=0, rules={"repeats": len(COMMITS)})

    def measure(_: object, name: str, number: int, *, folder: Path, **__: Any) -> Measurement:
        found = {"git": {"commit": COMMITS[number - 1]}}
        run = RunBuilder(folder, name).steps(5).end("stopped", provenance=found)
        return make_measurement(name, number, run.id)

    monkeypatch.setattr(rounds, "measure", measure)
    monkeypatch.setattr(rounds, "provenance", lambda *_: {"git": {"commit": COMMITS[0]}})
    monkeypatch.setattr(rounds, "find_obstacles_of_any", lambda *_: [])
    process = rounds.Rounds(bench.dir)
    process.begin(queue=False)
    process.run()
    assert bench.state.rounds == len(COMMITS), bench.state.reason
    assert len([*(bench.dir / RUNS).iterdir()]) == len(COMMITS)
    assert bench.state.warnings == ["in round 3: commit was a and is b"]
