"""Which of several recorded runs is called the best."""

from __future__ import annotations

from pathlib import Path

from distrain.runners.analysis.comparison import recorded_runs
from tests.support.records import RunBuilder


def test_no_run_is_best_where_the_numbers_of_evaluated_samples_differ(tmp_path: Path) -> None:
    runs = ("a", 360, 0.9), ("b", 1000, 0.8)
    records = [
        RunBuilder(tmp_path, name).steps(40).evaluation(samples, top1=top1).end().record
        for name, samples, top1 in runs
    ]
    found = recorded_runs.compare(records)
    assert not any("best" in text for text in found.results)
    text = "the last evaluations have unequal numbers of samples: a 360, b 1,000"
    assert text in found.warnings


def test_the_best_run_is_that_by_the_metric_of_the_best_checkpoint(tmp_path: Path) -> None:
    wanted = {"checkpoint.best": "margin", "checkpoint.best_is": "max"}
    records = [
        RunBuilder(tmp_path, name, **wanted).steps(40).evaluation(**values).end().record
        for name, values in (("a", {"top1": 0.9, "margin": 2}), ("b", {"top1": 0.8, "margin": 3}))
    ]
    failed = RunBuilder(tmp_path, "failed").end(status="failed").record
    found = recorded_runs.compare([*records, failed])
    assert any(text.startswith("b is best by margin") for text in found.results)
