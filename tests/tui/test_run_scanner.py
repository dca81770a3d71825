"""The table of runs: its rows, their order and filter, and how changes are found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.protocol.events import Job
from distrain.runners.records.reader import Record, list_records
from distrain.tui.data.row_filter import RowFilter
from distrain.tui.data.run_rows import RunRow, sort_rows
from distrain.tui.data.run_scanner import FIRST_BATCH, MOST_DETAILS, FolderChanges, RunScanner
from tests.support.records import RunBuilder

Make = Callable[..., RunBuilder]


def a_row(id: str, **fields: Any) -> RunRow:
    return RunRow(**{"id": id, "created": 0.0, "status": "completed", **fields})


def scan(scanner: RunScanner) -> dict[str, RunRow]:
    return {row.id: row for news in scanner.scan() for row in news.rows}


def ids(rows: list[RunRow]) -> str:
    return " ".join(row.id for row in rows)


# --- order and filter ---


def test_the_newest_run_is_first_by_default() -> None:
    rows = [a_row("old", created=1), a_row("new", created=3), a_row("mid", created=2)]
    assert ids(sort_rows(rows)) == "new mid old"
    assert ids(sort_rows(rows, "age", descending=False)) == "old mid new"


def test_pinned_runs_stay_on_top_in_every_order() -> None:
    rows = [a_row("a", step=1, pinned=True), a_row("b", step=2), a_row("c", step=3)]
    assert ids(sort_rows(rows, "progress", descending=True)) == "a c b"
    assert ids(sort_rows(rows, "progress", descending=False)) == "a b c"


@pytest.mark.parametrize("descending", [True, False])
def test_runs_without_a_value_are_last_in_both_directions(descending: bool) -> None:
    rows = [a_row("none"), a_row("low", value=0.1), a_row("high", value=0.9)]
    assert ids(sort_rows(rows, "metric", descending)).endswith("none")


def test_equal_runs_are_in_order_of_age() -> None:
    rows = [a_row("old", name="same"), a_row("new", name="same", created=1)]
    assert ids(sort_rows(rows, "name", descending=False)) == "new old"
    assert ids(sort_rows(rows, "name", descending=True)) == "new old"


def test_an_unknown_sort_column_sorts_by_age() -> None:
    assert ids(sort_rows([a_row("old"), a_row("new", created=1)], "gone")) == "new old"


def test_every_word_of_a_filter_must_be_somewhere_in_a_run() -> None:
    one = a_row("20260101-000000-ddp-aaaa", name="Baseline", tags=("paper",), model="cnn")
    two = a_row("20260101-000000-ddp-bbbb", notes="better than the baseline", data="mnist")
    select = RowFilter().select
    assert select([one, two], "") == [one, two]
    assert select([one, two], "baseline") == [one, two]
    assert select([one, two], "BASE paper") == [one]
    assert select([one, two], "mnist better") == [two]
    assert select([one, two], "mnist paper") == []


def test_an_id_is_shortened_by_its_date_only() -> None:
    assert a_row("20260101-120000-my-preset-x7k2").short == "my-preset-x7k2"
    assert a_row("copied-by-hand").short == "copied-by-hand"


# --- reading ---


def test_a_finished_run_is_read_from_its_small_files(make: Make, runs_dir: Path) -> None:
    run = make("first", **{"train.lr": 0.2}).steps(40).evaluation(loss=0.5, top1=0.9).end()
    run.note(notes="good", tags=["paper"])
    (run.dir / "metrics.db").unlink()
    row = scan(RunScanner(runs_dir))[run.id]
    assert (row.name, row.notes, row.tags) == ("first", "good", ("paper",))
    assert (row.status, row.live, row.strategy, row.ranks) == ("completed", False, "ddp", 2)
    assert (row.step, row.metric, row.value) == (40, "top1", pytest.approx(0.9))
    assert row.samples_per_s == pytest.approx(1280)
    assert (row.model, row.data) == ("mlp", "digits")


def test_a_live_run_is_followed_until_it_has_ended(make: Make, runs_dir: Path) -> None:
    run, scanner = make("live").steps(10), RunScanner(runs_dir)
    row = scan(scanner)[run.id]
    assert (row.live, row.step, row.fraction) == (True, 10, pytest.approx(0.25))
    run.steps(10)
    assert scan(scanner)[run.id].step == 20
    run.end("stopped", reason="stopped by hand")
    row = scan(scanner)[run.id]
    assert (row.live, row.status, row.reason) == (False, "stopped", "stopped by hand")
    scanner.close()


def test_a_run_whose_job_has_no_supervisor_stays_live_with_a_reason(
    make: Make, runs_dir: Path
) -> None:
    run = make(launcher="slurm", **{"slurm.report": "files"}).steps(10)
    job = Job(time=run.now, id="7", state="RUNNING")
    run.writer.set_state(job=job, supervisor_pid=2**22 + 1, supervisor_started=1.0)
    row = scan(RunScanner(runs_dir))[run.id]
    assert (row.status, row.live, row.step) == ("running", True, 10)
    assert row.reason.startswith("the supervisor is gone while the job runs on; recover it")


def test_a_summary_is_computed_for_a_run_without_one(make: Make, runs_dir: Path) -> None:
    run = make().steps(20)
    run.writer.set_state(supervisor_pid=2**22 + 1, supervisor_started=1.0)
    row = scan(RunScanner(runs_dir))[run.id]
    assert (row.status, row.strategy, row.step) == ("failed", "ddp", 20)


def test_a_scan_without_changes_finds_nothing(ended: Make, runs_dir: Path) -> None:
    ended("one")
    _in_the_past(runs_dir)
    scanner = RunScanner(runs_dir)
    assert scan(scanner)
    assert list(scanner.scan()) == []


def test_new_runs_are_found_and_removed_ones_are_named(ended: Make, runs_dir: Path) -> None:
    scanner, first = RunScanner(runs_dir), ended("first")
    assert set(scan(scanner)) == {first.id}
    second = ended("second")
    assert set(scan(scanner)) == {second.id}
    shutil.rmtree(first.dir)
    assert [news.gone for news in scanner.scan() if news.gone] == [[first.id]]


def test_a_live_run_that_was_away_for_a_moment_is_listed_again(make: Make, runs_dir: Path) -> None:
    run = make().steps(5)
    _in_the_past(runs_dir)
    scanner = RunScanner(runs_dir)
    assert set(scan(scanner)) == {run.id}
    text = (run.dir / "run.json").read_text()
    (run.dir / "run.json").write_text("{")  # its supervisor writes it again
    assert not any(news.gone for news in scanner.scan())
    away = run.dir.rename(runs_dir.parent / "away")
    assert [news.gone for news in scanner.scan() if news.gone] == [[run.id]]
    away.rename(run.dir)
    (run.dir / "run.json").write_text(text)
    assert set(scan(scanner)) == {run.id}


def test_notes_of_another_app_are_found_by_a_full_scan(ended: Make, runs_dir: Path) -> None:
    scanner, run = RunScanner(runs_dir), ended("old name")
    scan(scanner)
    Record(run.dir).set_meta(name="new name")
    scanner.reset()
    row = scan(scanner)[run.id]
    assert (row.name, row.model) == ("new name", "mlp")


def test_the_first_batch_is_small_and_the_newest(runs_dir: Path) -> None:
    for number in range(FIRST_BATCH + 5):
        _plant(runs_dir / f"20260101-{number:06}-ddp-aaaa")
    first, rest, *_ = RunScanner(runs_dir).scan()
    assert (len(first.rows), len(rest.rows)) == (FIRST_BATCH, 5)
    assert first.rows[0].id > first.rows[-1].id > rest.rows[0].id


def test_a_removed_broken_folder_is_no_longer_reported(runs_dir: Path) -> None:
    broken, scanner = runs_dir / "broken", RunScanner(runs_dir)
    broken.mkdir()
    (broken / "run.json").write_text("{")
    assert "broken" in next(news.problems for news in scanner.scan() if news.problems)
    shutil.rmtree(broken)
    assert [news.problems for news in scanner.scan() if news.problems is not None] == [{}]


def test_an_evaluation_without_a_metric_is_listed(make: Make, runs_dir: Path) -> None:
    run = make().steps(10).evaluation()
    assert scan(RunScanner(runs_dir))[run.id].metric == ""


def test_a_folder_that_cannot_be_read_is_named_and_the_others_listed(
    ended: Make, runs_dir: Path
) -> None:
    run, broken = ended("fine"), runs_dir / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    (runs_dir / "not a run").mkdir()
    found = list(RunScanner(runs_dir).scan())
    assert {row.id for news in found for row in news.rows} == {run.id}
    problems: dict[str, str] = next(news.problems for news in found if news.problems)
    assert list(problems) == ["broken"]
    assert "run.json is broken" in problems["broken"]


def test_a_runs_folder_that_does_not_exist_has_no_runs(tmp_path: Path) -> None:
    assert list(RunScanner(tmp_path / "nowhere").scan()) == []


def test_a_runs_folder_that_vanishes_is_a_problem_until_it_is_back(
    ended: Make, runs_dir: Path
) -> None:
    run = ended("mine")
    scanner = RunScanner(runs_dir)
    assert [*scan(scanner)] == [run.id]
    runs_dir.rename(runs_dir.with_name("away"))
    changes = [*scanner.scan()]
    assert [id for each in changes for id in each.gone] == [run.id]
    said = f"{runs_dir} was moved or deleted; its runs are listed once it is back"
    assert changes[-1].problems == {"": said}
    assert [*scanner.scan()] == []
    runs_dir.with_name("away").rename(runs_dir)
    changes = [*scanner.scan()]
    assert {row.id for each in changes for row in each.rows} == {run.id}
    assert [each.problems for each in changes if each.problems is not None] == [{}]


def test_the_trash_is_not_listed(ended: Make, runs_dir: Path) -> None:
    run = ended("gone")
    (runs_dir / ".trash").mkdir()
    run.dir.rename(runs_dir / ".trash" / run.id)
    assert list(RunScanner(runs_dir).scan()) == []


def test_changes_are_empty_by_default() -> None:
    assert FolderChanges() == FolderChanges(rows=(), gone=(), problems=None)


def _in_the_past(folder: Path) -> None:
    """Date a folder back, because folders that changed seconds ago are read again."""
    os.utime(folder, (1000, 1000))


def _plant(folder: Path) -> None:
    folder.mkdir()
    state = {"run_id": folder.name, "created": 1.0, "status": "completed"}
    summary = {"strategy": "ddp", "launcher": "spawn", "precision": "fp32", "steps": 1}
    (folder / "run.json").write_text(json.dumps({**state, "format": 1, "summary": summary}))


def test_details_of_many_runs_are_read_over_several_scans(runs_dir: Path) -> None:
    for number in range(MOST_DETAILS + 5):
        _plant(runs_dir / f"20260101-{number:06}-ddp-aaaa")
    scanner = RunScanner(runs_dir)
    assert sum(row.detailed for row in scan(scanner).values()) == MOST_DETAILS
    assert scanner.has_more
    assert sum(row.detailed for row in scan(scanner).values()) == 5
    assert not scanner.has_more


def test_an_unreadable_record_hides_no_other(ended: Make, runs_dir: Path) -> None:
    run = ended("fine")
    (runs_dir / "loop").symlink_to("loop")
    for name, text in (("deep", "[" * 100_000), ("odd", '{"format": 1, "created": "x"}')):
        (runs_dir / name).mkdir()
        (runs_dir / name / "run.json").write_text(text)
    found = list(RunScanner(runs_dir).scan())
    assert [row.id for news in found for row in news.rows if not row.detailed] == [run.id]
    [problems] = [news.problems for news in found if news.problems]
    assert set(problems) == {"deep", "odd"}
    assert [record.id for record in list_records(runs_dir)] == [run.id]


def test_a_damaged_run_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    fine = RunBuilder(tmp_path, "fine").steps(1).end()
    damaged = RunBuilder(tmp_path, "damaged").steps(1).end()
    (damaged.dir / "run.json").write_bytes(b'{"run_id": "\xff"}')
    piped = RunBuilder(tmp_path, "piped").steps(1).end()
    (piped.dir / "run.json").unlink()
    os.mkfifo(piped.dir / "run.json")
    changes = [*RunScanner(tmp_path).scan()]
    assert {row.id for change in changes for row in change.rows} == {fine.id}
    problems = next(change.problems for change in changes if change.problems)
    assert "its run.json is broken (byte 12 is not UTF-8)" in problems[damaged.id]
    assert "its run.json: it is not a regular file" in problems[piped.id]
