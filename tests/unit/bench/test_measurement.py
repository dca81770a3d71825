"""What counts as a measurement of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.bench import measurement
from distrain.runners.bench.measurement import BenchStoppedError, TooShortError, measure
from distrain.runners.runs import Run
from tests.support.benches import config, definition
from tests.support.records import RunBuilder


@pytest.mark.parametrize("is_bench_stopping", [False, True])
def test_a_run_that_a_person_has_stopped_is_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bench_stopping: bool
) -> None:
    stopped = RunBuilder(tmp_path).steps(40).end("stopped")
    monkeypatch.setattr(measurement, "launch", lambda *_, **__: Run(stopped.record))
    with pytest.raises(BenchStoppedError if is_bench_stopping else TooShortError):
        measure(
            definition({"a": config(), "b": config(train__lr=0.2)}),
            "a",
            1,
            folder=tmp_path,
            cwd=str(tmp_path),
            queue=False,
            environment={},
            is_stopping=lambda: is_bench_stopping,
            on_launch=lambda _: None,
        )
