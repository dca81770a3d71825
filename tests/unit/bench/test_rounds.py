"""What a bench records while it runs its rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.bench import rounds
from distrain.runners.bench.folder import RUNS
from distrain.runners.bench.state import Measurement
from tests.support.benches import make_bench
from tests.support.records import RunBuilder

COMMITS = ("a", "a", "b", "c")  # of the rounds


def test_code_that_changes_while_a_bench_runs_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, because a script may write to files that git tracks."""
    bench = make_bench(tmp_path, {"single": 5000.0}, rounds=0, rules={"repeats": len(COMMITS)})

    def measure(_: object, name: str, number: int, *, folder: Path, **__: Any) -> Measurement:
        found = {"git": {"commit": COMMITS[number - 1]}}
        run = RunBuilder(folder, name).steps(5).end("stopped", provenance=found)
        return Measurement(
            candidate=name,
            round=number,
            run_id=run.id,
            rate=5000.0,
            seconds=5.0,
            warmup_s=1.0,
            steady=True,
            duration_s=6.0,
            phases={},
        )

    monkeypatch.setattr(rounds, "measure", measure)
    monkeypatch.setattr(rounds, "provenance", lambda *_: {"git": {"commit": COMMITS[0]}})
    monkeypatch.setattr(rounds, "find_obstacles_of_any", lambda *_: [])
    process = rounds.Rounds(bench.dir)
    process.begin(queue=False)
    process.run()
    assert bench.state.rounds == len(COMMITS), bench.state.reason
    assert len([*(bench.dir / RUNS).iterdir()]) == len(COMMITS)
    assert bench.state.warnings == ["in round 3: commit was a and is b"]
