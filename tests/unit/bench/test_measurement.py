"""What counts as a measurement of a run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distrain.runners.bench import measurement
from distrain.runners.bench.definition import Definition, Target, make
from distrain.runners.bench.measured_part import STALL_S
from distrain.runners.bench.measurement import BenchStoppedError, TooShortError, measure
from distrain.runners.bench.state import Measurement
from distrain.runners.errors import DistrainError
from distrain.runners.records.stall import RankPosition, Stall
from distrain.runners.runs import Run
from tests.support.benches import config, definition
from tests.support.records import RunBuilder


def measure_a(defined: Definition, folder: Path, is_stopping: bool = False) -> Measurement:
    return measure(
        defined,
        "a",
        1,
        folder=folder,
        cwd=str(folder),
        queue=False,
        environment={},
        is_stopping=lambda: is_stopping,
        on_launch=lambda _: None,
    )


@pytest.mark.parametrize("is_bench_stopping", [False, True])
def test_a_run_that_a_person_has_stopped_is_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bench_stopping: bool
) -> None:
    stopped = RunBuilder(tmp_path).steps(40).end("stopped")
    monkeypatch.setattr(measurement, "launch", lambda *_, **__: Run(stopped.record))
    with pytest.raises(BenchStoppedError if is_bench_stopping else TooShortError):
        measure_a(
            definition({"a": config(), "b": config(train__lr=0.2)}), tmp_path, is_bench_stopping
        )


@pytest.mark.parametrize("target", [None, Target(metric="top1", value=0.9)])
def test_a_run_that_hangs_is_no_measurement_and_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target | None
) -> None:
    """It was steady before, for less time than asked for."""
    hung = RunBuilder(tmp_path, ago=STALL_S + 100).steps(40)
    since = time.time() - STALL_S - 5
    at = RankPosition(rank=1, since=since, step=40, phase="data")
    hung.writer.set_state(stall=Stall(since=since, ranks=[1], positions=[at]))
    monkeypatch.setattr(measurement, "launch", lambda *_, **__: Run(hung.record))
    monkeypatch.setattr(measurement, "_end", lambda run: hung.end("stopped"))
    with pytest.raises(DistrainError, match=r"no progress for 10 min .*: rank 1 is in data"):
        measure_a(make({"a": config()}, {"seconds": 1000.0}, target), tmp_path)
