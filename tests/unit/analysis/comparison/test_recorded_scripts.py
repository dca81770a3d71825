"""Comparing runs of scripts: by samples where they are known, else by steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.analysis.comparison import recorded_runs
from distrain.runners.analysis.comparison.curves import MAX_POINTS, read_curves
from distrain.runners.protocol.events import ScriptSettings
from distrain.runners.records.reader import Record
from tests.support.records import STEP_S, RunBuilder


def run(
    folder: Path, name: str, *, samples: str = "", top1: float | None = None, **config: object
) -> Record:
    """Write a run of two ranks, each with 64 samples per step."""
    builder = RunBuilder(folder, name, world=2, script={"path": "train.py", "args": [name]})
    sources = {"steps": "distrain.step()", "samples": samples}
    builder.writer.add(ScriptSettings(time=0.0, rank=0, config=config, sources=sources))
    builder.steps(40)
    if top1 is not None:
        builder.evaluation(top1=top1)
    return builder.end().record


def test_runs_without_samples_are_compared_by_the_steps_of_the_run(tmp_path: Path) -> None:
    found = recorded_runs.compare([run(tmp_path, "a"), run(tmp_path, "b", samples="x")])
    assert found.unit == "steps/s"
    assert found.candidates[0].rates[0] == pytest.approx(1 / STEP_S)
    assert "global_batch" in found.unchecked
    assert [each.key for each in found.differences if not each.fair] == []


def test_a_run_that_failed_before_its_first_step_leaves_the_unit(tmp_path: Path) -> None:
    failed = RunBuilder(tmp_path, "failed", script={"path": "train.py"})
    records = [run(tmp_path, "a", samples="x"), failed.end(status="failed").record]
    assert recorded_runs.compare(records).unit == "samples/s"


def test_runs_with_samples_are_compared_by_them(tmp_path: Path) -> None:
    first = run(tmp_path, "a", samples="x", model="gpt")
    found = recorded_runs.compare([first, run(tmp_path, "b", samples="x", model="gpt")])
    assert found.unit == "samples/s"
    assert found.candidates[0].rates[0] == pytest.approx(2 * 64 / STEP_S)
    assert found.equal["samples per step (measured)"] == "128"
    assert found.equal["model"] == "gpt"


@pytest.mark.parametrize(("data", "is_said"), [("mnist", True), ("cifar10", False)])
def test_no_script_is_best_where_their_data_differ(
    tmp_path: Path, data: str, is_said: bool
) -> None:
    first = run(tmp_path, "a", top1=0.9, data="mnist")
    found = recorded_runs.compare([first, run(tmp_path, "b", top1=0.8, data=data)])
    assert any("is best by top1" in text for text in found.results) == is_said


@pytest.mark.parametrize("count", [MAX_POINTS - 100, MAX_POINTS + 2])
def test_curves_of_many_evaluations_have_every_metric_and_the_last_value(
    tmp_path: Path, count: int
) -> None:
    builder = RunBuilder(tmp_path, script={"path": "train.py"}).steps(1)
    for number in range(count):  # in turn, as of two data sets
        builder.evaluation(loss=1.0 + number)
        builder.evaluation(top1=number / 1000)
    curves = read_curves(builder.record)
    for name, last in (("eval loss", float(count)), ("eval top1", (count - 1) / 1000)):
        assert len(curves[name].values) <= MAX_POINTS
        assert curves[name].values[-1] == pytest.approx(last)
