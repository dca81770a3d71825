"""What the app reads of benches, and the picture of their rounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.style import Style

from distrain.runners.bench import folder
from distrain.runners.config.presets import load_preset
from distrain.runners.errors import DistrainError
from distrain.runners.records.trash import restore
from distrain.tui.data.bench_feed import BenchFeed, bench_row, runs_of
from distrain.tui.data.run_scanner import RunScanner
from distrain.tui.widgets.bench_header import header
from distrain.tui.widgets.bench_notes import notes
from distrain.tui.widgets.bench_results import OUTLIER
from distrain.tui.widgets.bench_rounds import ENDS, MEDIAN, round_lines
from tests.support.benches import change, make_bench
from tests.support.records import RunBuilder

Make = Callable[..., RunBuilder]
MARKS = [("▲", Style(color="red")), ("▼", Style(color="blue"))]


def test_a_bench_is_a_row_in_the_table_of_runs(make: Make, ended: Make, runs_dir: Path) -> None:
    ended("older", ago=9000)
    bench = make_bench(runs_dir, name="the bench", ago=600)
    rows = {row.id: row for news in RunScanner(runs_dir).scan() for row in news.rows}
    row = rows[bench.id]
    assert len(rows) == 2
    assert (row.name, row.strategy, row.launcher) == ("the bench", "bench", "single, ddp")
    assert (row.step, row.most, row.live, row.model) == (8, 20, False, "mlp")
    assert row.seconds == pytest.approx(16 * 14)


def test_a_live_bench_is_followed_until_it_has_ended(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running", begun=1)
    lister = RunScanner(runs_dir)

    def last_row() -> Any:
        return [row for news in lister.scan() for row in news.rows][-1]

    assert (last_row().live, last_row().step, last_row().reason) == (
        True,
        9,
        "round 9 of 7–20, run 2 of 2: ddp",
    )
    change(bench, status="completed", rounds=9, current=None, reason="it is known")
    assert (last_row().live, last_row().step) == (False, 9)
    bench.remove()
    assert [gone for news in lister.scan() for gone in news.gone] == [bench.id]


def test_a_bench_that_another_program_resumes_is_live_again(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running", begun=1)
    change(bench, status="stopped", ended=1.0)
    scanner = RunScanner(runs_dir)
    os.utime(runs_dir, (0, 0))  # no run was added since, and a scan of the folder tells so
    assert [row.live for news in scanner.scan() for row in news.rows] == [False]
    assert [*scanner.scan()] == [*scanner.scan_states()] == []
    change(bench, status="running", ended=None)
    assert {row.live for news in scanner.scan_states() for row in news.rows} == {True}
    change(bench, status="stopped", ended=1.0)
    assert {row.live for news in scanner.scan() for row in news.rows} == {False}
    change(bench, status="running", ended=None)
    assert {row.live for news in scanner.scan() for row in news.rows} == {True}


def test_a_bench_that_was_moved_to_the_trash_is_missed_and_found_again(runs_dir: Path) -> None:
    bench = make_bench(runs_dir)
    feed = BenchFeed(bench)
    feed.read()
    trash = bench.remove()
    assert feed.has_changed()
    with pytest.raises(DistrainError, match="was moved to the trash"):
        feed.read()
    restore(trash)
    assert feed.has_changed()
    assert feed.read().state.status == "completed"


def test_a_bench_whose_process_was_killed_is_read_again(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(runs_dir, status="running", begun=1)
    feed = BenchFeed(bench)
    assert feed.has_changed()
    assert feed.read().state.live
    monkeypatch.setattr(folder, "is_running", lambda *_: False)  # nobody writes its state again
    assert feed.has_changed()
    assert not feed.read().state.live
    assert not feed.has_changed()


def test_a_bench_that_has_ended_is_read_again_when_it_gets_a_name(runs_dir: Path) -> None:
    bench = make_bench(runs_dir)
    feed = BenchFeed(bench)
    feed.read()
    assert feed.has_changed()
    assert not feed.has_changed()
    bench.set_meta(name="a new name")
    assert feed.has_changed()
    assert "a new name" in header(feed.read(), bench.definition, 120)[0].plain


def test_a_bench_whose_run_waits_in_the_queue_is_queued(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running", begun=1)
    waiting = RunBuilder(bench.records_dir, begun=False)
    waiting.writer.set_state(status="queued", waiting_for=["GPU 0: run ddp-bf32"])
    assert bench.state.current is not None
    change(bench, current=msgspec.structs.replace(bench.state.current, run_id=waiting.id))
    row = bench_row(bench)
    assert (row.status, row.reason, row.live) == ("queued", "GPU 0: run ddp-bf32", True)
    title, _, current = header(BenchFeed(bench).read(), bench.definition, 120)
    assert title.plain.startswith("◌ queued")
    assert current.plain.endswith("ddp is queued: GPU 0: run ddp-bf32")


def test_a_bench_names_its_run_that_stands_still(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running", begun=1)
    hanging = RunBuilder(bench.records_dir).stalled()
    assert bench.state.current is not None
    change(bench, current=msgspec.structs.replace(bench.state.current, run_id=hanging.id))
    text = f"run {hanging.id}: no progress for "
    assert bench_row(bench).reason.startswith(text)
    *_, current = header(BenchFeed(bench).read(), bench.definition, 120)
    assert text in current.plain


def test_an_unreadable_bench_is_named_and_hides_no_other(runs_dir: Path) -> None:
    broken, sound = make_bench(runs_dir), make_bench(runs_dir)
    (broken.dir / "bench.json").write_text("{")
    news = list(RunScanner(runs_dir).scan())
    assert [row.id for each in news for row in each.rows] == [sound.id]
    assert any(broken.id in (each.problems or {}) for each in news)


def test_the_comparison_is_computed_again_only_after_new_measurements(runs_dir: Path) -> None:
    bench = make_bench(runs_dir, status="running", begun=1)
    feed = BenchFeed(bench)
    assert feed.has_changed()
    first = feed.read()
    assert feed.read().comparison is first.comparison
    change(bench, measurements=bench.state.measurements[:-1])
    assert feed.has_changed()
    assert feed.read().comparison is not first.comparison


def test_the_runs_of_a_candidate_include_the_current_one(runs_dir: Path) -> None:
    frame = BenchFeed(make_bench(runs_dir, status="running", rounds=2, begun=1)).read()
    assert [(run.round, run.rate is None) for run in runs_of(frame, "ddp")] == [
        (3, True),
        (2, False),
        (1, False),
    ]
    assert [run.round for run in runs_of(frame, "single")] == [3, 2, 1]


def test_a_row_names_no_model_if_the_models_differ(runs_dir: Path) -> None:
    wide = load_preset("ddp", {"model.name": "lenet"})
    row = bench_row(make_bench(runs_dir, configs={"ddp": wide}))
    assert (row.model, row.data) == ("several", "digits")


def test_a_row_names_the_parts_of_a_task_that_has_its_own(runs_dir: Path) -> None:
    own = {each: load_preset(each, {"task.name": "line:Line"}) for each in ("single", "ddp")}
    bench = make_bench(runs_dir, configs=own, rounds=0, status="running")
    assert (bench_row(bench).model, bench_row(bench).data) == ("line:Line", "")
    bench = make_bench(runs_dir, configs=own)
    declared = {"model": "Sequential", "data": "Points"}
    measured = [
        msgspec.structs.replace(each, declared=declared) for each in bench.state.measurements
    ]
    change(bench, measurements=measured)
    assert (bench_row(bench).model, bench_row(bench).data) == ("Sequential", "Points")


# --- the picture of the rounds ---


def test_the_picture_shows_rounds_intervals_and_outliers(runs_dir: Path) -> None:
    frame = BenchFeed(make_bench(runs_dir)).read()
    single, ddp, scale = round_lines(frame.comparison, MARKS, 90)
    assert OUTLIER in single.plain
    assert OUTLIER not in ddp.plain
    for line in (single.plain, ddp.plain):
        assert line.index(ENDS[0]) < line.index(MEDIAN) < line.index(ENDS[1])
    assert single.plain.index(MEDIAN) < ddp.plain.index(MEDIAN)
    assert "5,000" in scale.plain or "5k" in scale.plain


@pytest.mark.parametrize("width", [10, 24, 300])
def test_the_picture_fits_any_width(runs_dir: Path, width: int) -> None:
    long = {"ddp": 5000.0, "ddp," + "train.lr=0.1," * 12: 5100.0}
    configs = {name: load_preset("ddp") for name in long}
    frame = BenchFeed(make_bench(runs_dir, long, configs=configs)).read()
    lines = round_lines(frame.comparison, MARKS, width)
    assert all(line.cell_len <= width for line in lines)


def test_unequal_settings_are_listed_before_fair_differences(runs_dir: Path) -> None:
    configs = {"ddp": load_preset("ddp", {"train.batch_size": 256})}
    frame = BenchFeed(make_bench(runs_dir, configs=configs)).read()
    lines = [line.plain for line in notes(frame.comparison, 200)]
    first = next(line for line in lines if "differs" in line or "UNEQUAL" in line)
    assert "UNEQUAL: train.batch_size: single 128, ddp 256" in first
