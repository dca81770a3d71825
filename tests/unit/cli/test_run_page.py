"""What `show` collects of a run that goes on meanwhile."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from distrain.runners.cli import run_page
from distrain.runners.cli.run_lines import describe_event, format_progress
from distrain.runners.cli.run_picture import render_run
from distrain.runners.cli.script_lines import ScriptLines
from distrain.runners.protocol.events import ENDLESS, Saved
from distrain.runners.records.snapshot import Follower
from distrain.tui.widgets.run_header import header
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


def test_a_training_that_only_a_stop_ends_shows_its_steps_without_a_total(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, **{"train.epochs": ENDLESS}).steps(10)
    follower = Follower(run.record)
    lines = [describe_event(event) for event in follower.new_events()]
    snapshot = follower.snapshot()
    screen = Console(width=100)
    with screen.capture() as captured:
        screen.print(render_run(follower, snapshot, 100, 2))
        screen.print(*header(snapshot, run.record.config, 100))
    shown = [captured.get(), format_progress(snapshot), run_page.format_page(run.record)]
    assert [text.count("step 10  ") for text in shown] == [2, 1, 0]
    assert not any(f"{ENDLESS:,}" in text for text in [*shown, str(lines)])
    run.end()


@pytest.mark.parametrize("saved_at", [2, 3])
def test_the_evaluation_of_the_best_checkpoint_is_named_as_that(
    saved_at: int, tmp_path: Path
) -> None:
    # given a better evaluation than that of the only checkpoint
    run = RunBuilder(tmp_path)
    for number, top1 in enumerate([0.9, 0.5, 0.4], 1):
        run.steps(10).evaluation(top1=top1)
        if number == saved_at:
            saved = Saved(
                time=run.now, epoch=number, step=run.step, path="x", seconds=1.0, bytes=1, best=True
            )
            run.writer.add(saved)
    run.end()
    # when it is shown in all ways
    follower = Follower(run.record)
    follower.new_events()
    snapshot = follower.snapshot()
    screen = Console(width=150)
    with screen.capture() as captured:
        screen.print(render_run(follower, snapshot, 100, 2))
        screen.print(*header(snapshot, run.record.config, 150))
    page = run_page.format_page(run.record)
    # then none calls it the best evaluation, or shows the last one twice
    is_last = saved_at == 3
    texts = [page, captured.get()]
    assert [text.count("top1 50.00 %") for text in texts] == ([0, 0] if is_last else [1, 2])
    assert [text.count("top1 40.00 %") for text in texts] == [1, 2]
    assert [text.count("best checkpoint") for text in texts] == ([1, 0] if is_last else [1, 2])
    assert not any("best evaluation" in text for text in texts)


def test_a_logged_nan_is_shown_as_not_finite(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, script={"path": "train.py"}, world=1)
    run.logged(loss=0.5, acc=0.75).logged(loss=math.nan, acc=0.8)
    progress = io.StringIO()
    ScriptLines(run.record, progress, 0.0, io.StringIO()).update()
    snapshot = Follower(run.record).snapshot()
    lines = [line.plain for line in header(snapshot, run.record.config, 100)]
    for shown in (progress.getvalue(), "\n".join(lines), run_page.format_page(run.record)):
        assert re.search(r"loss +not finite", shown)
        assert re.search(r"acc +0\.8", shown)
