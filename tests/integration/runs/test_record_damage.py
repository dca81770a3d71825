"""A live run survives that somebody deletes and overwrites the files of its record."""

from __future__ import annotations

from collections.abc import Callable

from distrain import Run
from distrain.runners.records.reader import Record
from tests.support.runs import assert_nothing_left, wait_until


def test_a_run_ends_with_a_whole_record_whatever_was_deleted(start: Callable[..., Run]) -> None:
    alone = {"launcher": "inline", "devices": "cpu:1"}
    run = start(**alone, train__epochs=1000, task__args={"pace": 0.01})
    wait_until(lambda: any(info.step > 20 for info in run.record.ranks()))
    folder = run.dir
    for name in ("run.json", "metrics.db", "metrics.db-wal", "config.toml"):
        (folder / name).unlink()
    wait_until(lambda: all((folder / name).exists() for name in ("run.json", "metrics.db")))
    (folder / "run.json").write_text("{")
    wait_until(lambda: (folder / "run.json").read_text() != "{")
    run.stop()
    summary = run.wait()
    assert summary["status"] == "stopped"
    record = Record(folder)
    totals = record.totals().values()
    assert all(each["steps"] == summary["steps"] > 20 for each in totals)
    said = [event.text for _, event in record.events(kinds=("notice",))]
    for expected in (
        "run.json was deleted by somebody else and was written again",
        "run.json was overwritten by somebody else and was written again",
        "config.toml was deleted by somebody else and was written again",
        "metrics.db was deleted by somebody else and was written again; nothing is missing",
    ):
        assert said.count(expected) == 1
    assert "Traceback" not in (folder / "logs" / "supervisor.log").read_text()
    assert_nothing_left(run)
