"""What `show` collects of a run that goes on meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.cli import run_page
from tests.support.records import RunBuilder


@pytest.mark.parametrize("show", [run_page.collect_data, run_page.format_page])
def test_everything_belongs_to_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, show: Any
) -> None:
    run = RunBuilder(tmp_path).steps(10)
    shown: list[Any] = []
    summary = run_page.Record.summary

    def summary_then_steps(record: run_page.Record, state: Any) -> dict[str, Any]:
        found = summary(record, state)
        run.steps(7).evaluation(top1=0.5)
        shown.append(record.latest()[0].step)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(run_page.Record, "summary", summary_then_steps)
        text = str(show(run.record))
    assert shown == [10]
    assert "top1" not in text
    run.end()


def test_a_summary_without_measurements_is_called_that(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path).steps(10).end()
    run.record.close()
    assert "is missing" not in run_page.format_page(run.record)
    (run.record.dir / "metrics.db").unlink()
    record = run_page.Record(run.record.dir)
    assert "its metrics.db is missing: only the summary is left" in run_page.format_page(record)
