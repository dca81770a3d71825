"""The list of runs: what a row tells, how rows are sorted and filtered, how changes are seen."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.events import Job
from runners.record import Record, list_records
from tui.data.listing import FIRST_BATCH, MOST_DETAILS, Lister, News
from tui.data.rows import Row, matching, ordered

from .conftest import Made

Make = Callable[..., Made]


def a_row(id: str, **fields: Any) -> Row:
    return Row(**{"id": id, "created": 0.0, "status": "completed", **fields})


def seen(lister: Lister) -> dict[str, Row]:
    return {row.id: row for news in lister.look() for row in news.rows}


def ids(rows: list[Row]) -> str:
    return " ".join(row.id for row in rows)


# --- order and filter ---


def test_the_newest_run_stands_first_unless_it_is_asked_otherwise() -> None:
    rows = [a_row("old", created=1), a_row("new", created=3), a_row("mid", created=2)]
    assert ids(ordered(rows)) == "new mid old"
    assert ids(ordered(rows, "age", descending=False)) == "old mid new"


def test_pinned_runs_stay_on_top_in_every_order() -> None:
    rows = [a_row("a", step=1, pinned=True), a_row("b", step=2), a_row("c", step=3)]
    assert ids(ordered(rows, "progress", descending=True)) == "a c b"
    assert ids(ordered(rows, "progress", descending=False)) == "a b c"


@pytest.mark.parametrize("descending", [True, False])
def test_runs_without_a_value_come_last_whichever_way(descending: bool) -> None:
    rows = [a_row("none"), a_row("low", value=0.1), a_row("high", value=0.9)]
    assert ids(ordered(rows, "metric", descending)).endswith("none")


def test_equals_are_in_order_of_age() -> None:
    rows = [a_row("old", name="same"), a_row("new", name="same", created=1)]
    assert ids(ordered(rows, "name", descending=False)) == "new old"
    assert ids(ordered(rows, "name", descending=True)) == "new old"


def test_a_column_that_is_no_longer_there_sorts_by_age() -> None:
    assert ids(ordered([a_row("old"), a_row("new", created=1)], "gone")) == "new old"


def test_every_word_of_a_filter_must_be_somewhere_in_a_run() -> None:
    one = a_row("20260101-000000-ddp-aaaa", name="Baseline", tags=("paper",), model="cnn")
    two = a_row("20260101-000000-ddp-bbbb", notes="better than the baseline", data="mnist")
    assert matching([one, two], "") == [one, two]
    assert matching([one, two], "baseline") == [one, two]
    assert matching([one, two], "BASE paper") == [one]
    assert matching([one, two], "mnist better") == [two]
    assert matching([one, two], "mnist paper") == []


def test_an_id_is_shortened_by_its_date_only() -> None:
    assert a_row("20260101-120000-my-preset-x7k2").short == "my-preset-x7k2"
    assert a_row("copied-by-hand").short == "copied-by-hand"


# --- reading ---


def test_a_finished_run_is_known_by_its_small_files(make: Make, runs_dir: Path) -> None:
    run = make("first", **{"train.lr": 0.2}).steps(40).evaluation(loss=0.5, top1=0.9).end()
    run.note(notes="good", tags=["paper"])
    (run.dir / "metrics.db").unlink()
    row = seen(Lister(runs_dir))[run.id]
    assert (row.name, row.notes, row.tags) == ("first", "good", ("paper",))
    assert (row.status, row.live, row.strategy, row.ranks) == ("completed", False, "ddp", 2)
    assert (row.step, row.metric, row.value) == (40, "top1", pytest.approx(0.9))
    assert row.samples_per_s == pytest.approx(1280)
    assert (row.model, row.data) == ("mlp", "digits")


def test_a_live_run_is_followed_until_it_has_ended(make: Make, runs_dir: Path) -> None:
    run, lister = make("live").steps(10), Lister(runs_dir)
    row = seen(lister)[run.id]
    assert (row.live, row.step, row.fraction) == (True, 10, pytest.approx(0.25))
    run.steps(10)
    assert seen(lister)[run.id].step == 20
    run.end("stopped", reason="stopped by hand")
    row = seen(lister)[run.id]
    assert (row.live, row.status, row.reason) == (False, "stopped", "stopped by hand")
    lister.close()


def test_a_run_whose_job_nobody_follows_stays_live_and_says_so(make: Make, runs_dir: Path) -> None:
    run = make(launcher="slurm", **{"slurm.report": "files"}).steps(10)
    job = Job(time=run.now, id="7", state="RUNNING")
    run.writer.set_state(job=job, supervisor_pid=2**22 + 1, supervisor_started=1.0)
    row = seen(Lister(runs_dir))[run.id]
    assert (row.status, row.live, row.step) == ("running", True, 10)
    assert row.reason.startswith("nobody follows its job now; `distrain watch")


def test_a_run_that_left_no_summary_is_summed_up(make: Make, runs_dir: Path) -> None:
    run = make().steps(20)
    run.writer.set_state(supervisor_pid=2**22 + 1, supervisor_started=1.0)
    row = seen(Lister(runs_dir))[run.id]
    assert (row.status, row.strategy, row.step) == ("failed", "ddp", 20)


def test_a_look_where_nothing_has_changed_finds_nothing(ended: Make, runs_dir: Path) -> None:
    ended("one")
    _in_the_past(runs_dir)
    lister = Lister(runs_dir)
    assert seen(lister)
    assert list(lister.look()) == []


def test_new_runs_are_seen_and_those_that_went_are_named(ended: Make, runs_dir: Path) -> None:
    lister, first = Lister(runs_dir), ended("first")
    assert set(seen(lister)) == {first.id}
    second = ended("second")
    assert set(seen(lister)) == {second.id}
    shutil.rmtree(first.dir)
    assert [news.gone for news in lister.look() if news.gone] == [[first.id]]


def test_what_was_noted_elsewhere_is_seen_when_everything_is_looked_at_again(
    ended: Make, runs_dir: Path
) -> None:
    lister, run = Lister(runs_dir), ended("old name")
    seen(lister)
    Record(run.dir).set_meta(name="new name")
    lister.again()
    row = seen(lister)[run.id]
    assert (row.name, row.model) == ("new name", "mlp")


def test_the_first_batch_is_small_and_the_newest(runs_dir: Path) -> None:
    for number in range(FIRST_BATCH + 5):
        _plant(runs_dir / f"20260101-{number:06}-ddp-aaaa")
    first, rest, *_ = Lister(runs_dir).look()
    assert (len(first.rows), len(rest.rows)) == (FIRST_BATCH, 5)
    assert first.rows[0].id > first.rows[-1].id > rest.rows[0].id


def test_a_broken_folder_that_goes_is_forgotten(runs_dir: Path) -> None:
    broken, lister = runs_dir / "broken", Lister(runs_dir)
    broken.mkdir()
    (broken / "run.json").write_text("{")
    assert "broken" in next(news.problems for news in lister.look() if news.problems)
    shutil.rmtree(broken)
    assert [news.problems for news in lister.look() if news.problems is not None] == [{}]


def test_an_evaluation_without_a_metric_is_listed(make: Make, runs_dir: Path) -> None:
    run = make().steps(10).evaluation()
    assert seen(Lister(runs_dir))[run.id].metric == ""


def test_a_folder_that_cannot_be_read_is_named_and_the_others_listed(
    ended: Make, runs_dir: Path
) -> None:
    run, broken = ended("fine"), runs_dir / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    (runs_dir / "not a run").mkdir()
    found = list(Lister(runs_dir).look())
    assert {row.id for news in found for row in news.rows} == {run.id}
    problems: dict[str, str] = next(news.problems for news in found if news.problems)
    assert list(problems) == ["broken"]
    assert "run.json is broken" in problems["broken"]


def test_a_runs_folder_that_does_not_exist_has_no_runs(tmp_path: Path) -> None:
    assert list(Lister(tmp_path / "nowhere").look()) == []


def test_the_trash_is_not_listed(ended: Make, runs_dir: Path) -> None:
    run = ended("gone")
    (runs_dir / ".trash").mkdir()
    run.dir.rename(runs_dir / ".trash" / run.id)
    assert list(Lister(runs_dir).look()) == []


def test_news_say_nothing_unless_told() -> None:
    assert News() == News(rows=(), gone=(), problems=None)


def _in_the_past(folder: Path) -> None:
    """What was written seconds ago is looked at again: pretend that it is long ago."""
    os.utime(folder, (1000, 1000))


def _plant(folder: Path) -> None:
    folder.mkdir()
    state = {"run_id": folder.name, "created": 1.0, "status": "completed"}
    summary = {"strategy": "ddp", "launcher": "spawn", "precision": "fp32", "steps": 1}
    (folder / "run.json").write_text(json.dumps({**state, "format": 1, "summary": summary}))


def test_details_of_very_many_runs_are_read_over_several_looks(runs_dir: Path) -> None:
    for number in range(MOST_DETAILS + 5):
        _plant(runs_dir / f"20260101-{number:06}-ddp-aaaa")
    lister = Lister(runs_dir)
    assert sum(row.detailed for row in seen(lister).values()) == MOST_DETAILS
    assert lister.behind
    assert sum(row.detailed for row in seen(lister).values()) == 5
    assert not lister.behind


def test_one_record_that_nobody_can_read_hides_no_other(ended: Make, runs_dir: Path) -> None:
    run = ended("fine")
    (runs_dir / "loop").symlink_to("loop")
    for name, text in (("deep", "[" * 100_000), ("odd", '{"format": 1, "created": "x"}')):
        (runs_dir / name).mkdir()
        (runs_dir / name / "run.json").write_text(text)
    found = list(Lister(runs_dir).look())
    assert [row.id for news in found for row in news.rows if not row.detailed] == [run.id]
    [problems] = [news.problems for news in found if news.problems]
    assert set(problems) == {"deep", "odd"}
    assert [record.id for record in list_records(runs_dir)] == [run.id]
