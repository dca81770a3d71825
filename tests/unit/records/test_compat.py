"""Records of older versions open; columns that they lack read as missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.records.database import open_for_writing
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.timeseries.appender import Appender
from distrain.runners.records.timeseries.series import STEPS
from tests.support.records import completed_run, make_window

LATER = ("overlap", "wait", "loss_weight")


@pytest.fixture
def old(tmp_path: Path) -> Record:
    """Return a run of 40 windows without the columns that were added later."""
    record = completed_run(
        tmp_path,
        lambda rank, _: {"seconds": 1.0, "data": 0.1 + 0.2 * rank, "comm": 0.5 - 0.2 * rank},
    )
    db = sqlite3.connect(record.dir / "metrics.db")
    for table in ("steps", "steps_rollup"):
        for column in LATER if table == "steps" else LATER[:-1]:
            db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    db.commit()
    db.close()
    return Record(record.dir)


def test_columns_that_were_added_later_are_missing(old: Record) -> None:
    assert old.latest()[1].wait == 0.0
    assert old.totals()[0]["overlap"] == 0
    for points in (4, 64):  # from roll-ups, and from raw rows
        curve = old.curve(STEPS, 0, columns=("wait", "data"), points=points)
        assert set(curve["wait"]) == {0.0}
        assert sum(curve["data"]) == pytest.approx(4.0)
        assert set(old.curve(STEPS, 0, columns=("loss",), points=points)["loss"]) == {2.0}
    assert len(list(old.raw(STEPS, 0))) == 40


def test_an_older_run_is_shown_and_diagnosed_without_them(old: Record) -> None:
    follower = Follower(old)
    follower.new_events()
    assert follower.snapshot().ranks[0].shares["overlap"] == 0.0
    found = diagnose(old)
    assert (found.kind, found.straggler and found.straggler.rank) == ("straggler", 1)


def test_reading_leaves_the_file_unchanged(old: Record) -> None:
    before = (old.dir / "metrics.db").read_bytes()
    old.totals()
    old.close()
    assert (old.dir / "metrics.db").read_bytes() == before


def test_a_writer_that_continues_an_older_database_adds_them(old: Record) -> None:
    old.close()
    with closing(open_for_writing(old.dir / "metrics.db")) as db:
        Appender(STEPS).append(db, [make_window(7, n, wait=0.5, loss_weight=2.0) for n in range(9)])
    totals = Record(old.dir).totals()
    assert (totals[0]["wait"], totals[7]["wait"]) == (0, 4.5)
    assert (totals[0]["loss_samples"], totals[7]["loss_samples"]) == (160, 18)
