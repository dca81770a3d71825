"""Restarted ranks continue in the same record.

What is later than the checkpoint is removed, and every figure is as if it had never been recorded.
"""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from distrain.runners.analysis.comparison.figures import compute_figures
from distrain.runners.analysis.comparison.recorded_runs import compare
from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.cli.run_lines import describe_event
from distrain.runners.cli.run_page import collect_data, format_page
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.protocol.events import (
    Attempt,
    Evaluation,
    Event,
    Exited,
    Facts,
    Finished,
    GpuSample,
    Hello,
    HostSample,
    Logged,
    LoggedStats,
    Metric,
    NonFinite,
    Notice,
    Phase,
    RankSample,
    Saved,
    Window,
)
from distrain.runners.records.export import export
from distrain.runners.records.folder import create_run
from distrain.runners.records.journal import JournalWriter
from distrain.runners.records.reader import Record
from distrain.runners.records.run_folder import JOURNAL
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.stall import Stall
from distrain.runners.records.timeseries.appender import Appender
from distrain.runners.records.timeseries.rows import read_totals
from distrain.runners.records.timeseries.series import HOST, LOGGED, STEPS
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision.attempts import Attempts
from distrain.runners.supervision.supervisor import Supervisor
from tests.support.full_disk import Disk
from tests.support.records import make_window

CONFIG = RunConfig.from_dict({"devices": "cpu:2"})


def evaluated(step: int, top1: float = 0.5) -> Evaluation:
    metrics = {"top1": Metric(100 * top1, 100)}
    return Evaluation(
        time=1000.0 + step, epoch=0, step=step, samples=100, seconds=1.0, metrics=metrics
    )


def saved(step: int, best: bool = False) -> Saved:
    path = f"checkpoints/step-{step:08d}.pt"
    return Saved(time=1000.0 + step, epoch=0, step=step, path=path, seconds=0.1, bytes=9, best=best)


def attempt(number: int, step: int, lost: int, time: float = 2000.0) -> Attempt:
    return Attempt(time=time, number=number, step=step, lost=lost, reason="rank 1 died")


def a_writer(runs_dir: Path) -> RecordWriter:
    return RecordWriter(create_run(runs_dir, CONFIG, word="ddp", plan=plan_here(CONFIG)))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RecordWriter]:
    made = a_writer(tmp_path)
    yield made
    made.close()


def add(writer: RecordWriter, first: int, last: int, **changes: Any) -> None:
    """Add a window for each of these steps, on two ranks."""
    for step in range(first, last + 1):
        for rank in (0, 1):
            writer.add(make_window(rank, step, **changes))


@contextmanager
def read(writer: RecordWriter) -> Iterator[Record]:
    writer.commit()
    with Record(writer.dir) as record:
        yield record


# --- everything at random ----------------------------------------------------------------------


class Story:
    """What ranks send over several attempts, and what of it remains valid."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = self.rng.randint(1, 3)
        self.sent: list[Event] = []
        self.valid: list[Window | Evaluation] = []
        for number in range(1, self.rng.randint(1, 5)):
            kept, reached = self._attempt()
            self.sent.append(attempt(number, kept, reached, time=10_000.0 * number))
            self.valid = [each for each in self.valid if each.step <= kept]
        self._attempt()

    def _attempt(self) -> tuple[int, int]:
        """Add stretches between checkpoints, the last one cut short.

        Returns the step of the last checkpoint and the last step.
        """
        kept = max((each.step for each in self.valid), default=0)
        reached = [kept] * self.world
        for stretch in range(self.rng.randint(1, 5)):
            if stretch and self.rng.random() < 0.7:
                kept = reached[0]
                self.sent.append(saved(kept))
            whole = self.rng.randint(1, 40)
            reached = [self._stretch(rank, at, whole) for rank, at in enumerate(reached)]
            if self.rng.random() < 0.5:
                self._send(evaluated(reached[0]))
        cut = [self._stretch(rank, at, self.rng.randint(0, 30)) for rank, at in enumerate(reached)]
        return kept, max(cut)

    def _stretch(self, rank: int, begin: int, steps: int) -> int:
        end, step = begin + steps, begin
        while step < end:
            width = min(self.rng.randint(1, 4), end - step)
            step += width
            time = 1000.0 + len(self.sent)
            warm = step > begin + 3
            seconds = self.rng.uniform(0.1, 1)
            self._send(
                make_window(rank, step, width, time=time, seconds=seconds, warmup=not warm, epoch=0)
            )
        return end

    def _send(self, event: Window | Evaluation) -> None:
        self.sent.append(event)
        self.valid.append(event)


def tables(record: Record) -> list[Any]:
    with closing(sqlite3.connect(record.dir / "metrics.db")) as db:
        rows = [
            db.execute(f"SELECT * FROM {name}").fetchall() for name in ("steps", "steps_rollup")
        ]
    curves = [record.overall(points=points, axis="time") for points in (7, 50)]
    columns = [[*map(str, curve[name])] for curve in curves for name in curve.columns]
    return [*rows, columns, record.totals(), record.evaluations()]


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_record_contains_exactly_the_valid_steps(seed: int) -> None:
    story = Story(seed)
    with tempfile.TemporaryDirectory() as name:
        lived, plain = a_writer(Path(name)), a_writer(Path(name))
        with Record(lived.dir) as record, Record(plain.dir) as wanted:
            follower = Follower(record)
            for event in story.sent:
                lived.add(event)
                if story.rng.random() < 0.05:
                    lived.commit()
                    follower.new_events()
                    follower.snapshot()
            for event in story.valid:
                plain.add(event)
            lived.commit()
            plain.commit()
            assert tables(record) == tables(wanted)
            # a follower that has watched from the start sees the same
            follower.new_events()
            assert list(follower.evaluations) == wanted.evaluations()
            # and the roll-ups still agree with what comes after
            for rank in range(story.world):
                last = record.latest()[rank].step if rank in record.latest() else 0
                for step in range(last + 1, last + 100):
                    lived.add(make_window(rank, step))
                    plain.add(make_window(rank, step))
            lived.commit()
            plain.commit()
            assert tables(record) == tables(wanted)
        lived.close()
        plain.close()


def received_by(supervisor: Supervisor) -> list[Any]:
    """Return everything that was received, without the times."""
    supervisor.writer.commit()
    with Record(supervisor.folder) as record:
        events = [
            (type(event), getattr(event, "step", None), getattr(event, "lost", None))
            for _, event in record.events()
            if not isinstance(event, Notice)
        ]
        ranks = [structs.replace(rank, last_seen=0.0) for rank in record.ranks()]
        return [events, ranks, record.state.attempts, record.state.facts, *tables(record)]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_journal_is_merged_once_however_many_supervisors_merge_it(seed: int) -> None:
    story = Story(seed)
    with tempfile.TemporaryDirectory() as name:
        plan = plan_here(CONFIG)
        shared, alone = (create_run(Path(name), CONFIG, word="far", plan=plan) for _ in "12")
        journal, sent, supervisor = JournalWriter(shared), iter(story.sent), Supervisor(shared)
        supervisor.coordinator.run.notice("only the first knows")
        supervisor.writer.commit()
        while part := list(islice(sent, story.rng.randint(1, 60))):
            for event in part:
                journal.add(event)
            journal.commit()
            if story.rng.random() < 0.4:  # and the one before is killed
                supervisor = Supervisor(shared)
                supervisor.journal.recover()
            supervisor.journal.merge()
            if story.rng.random() < 0.5:
                supervisor.writer.commit()
        journal.close()
        shutil.copy(shared / JOURNAL, alone)
        another = Supervisor(alone)
        another.journal.merge()
        assert received_by(supervisor) == received_by(another)
        with Record(shared) as record:
            texts = [event.text for _, event in record.events(kinds=["notice"])]  # type: ignore
        assert texts.count("only the first knows") == 1


def test_an_entry_of_a_journal_that_cannot_be_applied_loses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalWriter(create_run(tmp_path, CONFIG, word="far", plan=plan_here(CONFIG)))
    for event in (make_window(0, 1), evaluated(1), make_window(0, 2), evaluated(2), saved(2)):
        journal.add(event)
    journal.close()
    supervisor = Supervisor(journal.dir)
    update = supervisor.coordinator._update_evidence

    def fail_at_evaluations(event: Event) -> None:
        if isinstance(event, Evaluation):
            raise ZeroDivisionError("division by zero")
        update(event)

    monkeypatch.setattr(supervisor.coordinator, "_update_evidence", fail_at_evaluations)
    supervisor.journal.merge()
    supervisor.coordinator.run.notice("later")
    supervisor.writer.commit()
    with Record(journal.dir) as record:
        texts = [event.text for _, event in record.events(kinds=["notice"])]  # type: ignore
        assert texts == [
            "a message of the journal was skipped: ZeroDivisionError: division by zero",
            "later",
        ]
        assert record.totals()[0]["steps"] == 2
        assert [event for _, event in record.events(kinds=["saved"])] == [saved(2)]


def test_different_collectives_in_a_journal_are_remembered_after_the_stall(tmp_path: Path) -> None:
    text = "the ranks call different collectives as number 7"
    stall = Stall(since=1.0, ranks=[0, 1], waiting="", mismatch=text, positions=[])
    journal = JournalWriter(create_run(tmp_path, CONFIG, word="far", plan=plan_here(CONFIG)))
    journal.set_state(stall=stall)
    journal.set_state(stall=None, stall_ended=2.0)
    journal.close()
    supervisor = Supervisor(journal.dir)
    supervisor.journal.merge()
    assert supervisor.coordinator.run.evidence.mismatch == text


# --- one by one --------------------------------------------------------------------------------


def test_each_step_counts_once_and_curves_never_fall(writer: RecordWriter) -> None:
    add(writer, 1, 30)
    writer.add(attempt(1, step=20, lost=30))
    add(writer, 21, 25, loss_sum=4.0, time=3000.0)
    with read(writer) as record:
        run = record.overall()
        assert list(run["step"]) == [float(step) for step in range(1, 26)]
        assert list(run["time"]) == sorted(run["time"])
        assert list(run["loss"]) == [2.0] * 20 + [1.0] * 5
        assert [total["steps"] for total in record.totals().values()] == [25, 25]
        summary = record.summary()
        assert (summary["steps"], summary["samples"]) == (25, 200)
        assert (summary["attempts"], summary["steps_again"]) == (1, 10)
        assert summary["samples_per_s"] == 16.0


def test_attempts_in_one_commit_are_distinguished(writer: RecordWriter) -> None:
    add(writer, 1, 9)
    writer.add(attempt(1, step=4, lost=9))
    add(writer, 5, 6)
    writer.add(attempt(2, step=4, lost=6))
    add(writer, 5, 7)
    with read(writer) as record:
        assert list(record.overall()["step"]) == [1, 2, 3, 4, 5, 6, 7]
        assert [each.number for each in record.attempts()] == [1, 2]
        assert record.summary()["steps_again"] == 5 + 2


@pytest.mark.parametrize("is_link", [True, False])
def test_ranks_resume_after_the_last_checkpoint_also_where_a_copy_has_replaced_its_link(
    tmp_path: Path, is_link: bool
) -> None:
    folder = create_run(tmp_path, CONFIG, word="mine", plan=plan_here(CONFIG))
    checkpoints = folder / "checkpoints"
    for step in (5, 20):
        (checkpoints / f"step-{step:08d}.pt").write_bytes(b"weights")
    if is_link:
        (checkpoints / "last.pt").symlink_to("step-00000020.pt")
    else:
        (checkpoints / "last.pt").write_bytes(b"weights")
    coordinator = Supervisor(folder).coordinator
    Attempts(coordinator.run, coordinator.control.stop_protocol).begin(1)
    coordinator.run.writer.commit()
    with Record(folder) as record:
        assert [event.step for _, event in record.events() if isinstance(event, Attempt)] == [20]


def test_without_a_checkpoint_all_steps_are_removed(writer: RecordWriter) -> None:
    add(writer, 1, 100)
    writer.add(attempt(1, step=0, lost=100))
    with read(writer) as record:
        assert record.keys() == []
        assert len(record.overall()) == 0
        assert record.summary()["samples"] == 0
        assert Follower(record).snapshot().step == 0


def test_a_script_without_counted_steps_begins_again(writer: RecordWriter) -> None:
    value = {"reward": LoggedStats.of([1.0])}
    with Record(writer.dir) as record:
        early = Follower(record)
        again = structs.replace(attempt(1, step=0, lost=0), counts_from_zero=True)
        for event in (evaluated(0, 0.1), again, evaluated(0, 0.7)):
            writer.add(event)
            writer.add(Logged(time=event.time, rank=0, step=0, values=value))
            writer.commit()
            early.new_events()
        writer.add(evaluated(0, 0.8))
        writer.commit()
        early.new_events()
        assert record.evaluations() == [evaluated(0, 0.7), evaluated(0, 0.8)]
        assert list(early.evaluations) == record.evaluations()
        assert len(record.logged_curve("reward")) == 2


def log(writer: RecordWriter, name: str, first: int, last: int, time: float) -> None:
    values = {name: LoggedStats.of([1.0])}
    for step in range(first, last + 1):
        writer.add(Logged(time=time + step / 1000, rank=0, step=step, values=values))


@pytest.mark.parametrize("is_killed", [False, True])
def test_curves_of_a_script_are_kept_up_to_the_step_at_which_it_logs_again(
    is_killed: bool, tmp_path: Path
) -> None:
    folder = create_run(tmp_path, CONFIG, word="mine", plan=plan_here(CONFIG))
    writer = RecordWriter(folder, has_journal=True)
    add(writer, 1, 100)
    for name in ("loss", "accuracy", "once"):
        log(writer, name, 1, 100, 1000.0)
    writer.add(structs.replace(attempt(1, step=0, lost=100), counts_from_zero=True))
    log(writer, "loss", 61, 61, 3000.0)
    log(writer, "accuracy", 100, 100, 3000.0)
    log(writer, "reward", 5, 5, 3000.0)
    writer.commit()
    if is_killed:
        writer = RecordWriter(folder, has_journal=True)
    log(writer, "loss", 61, 90, 3001.0)  # two values at the first step, both of this attempt
    log(writer, "once", 1, 2, 3001.0)
    with read(writer) as record:
        assert record.totals() == {}
        steps = {name: [*record.logged_curve(name)["step"]] for name in record.logged()}
        assert steps["loss"] == [*range(1, 62), *range(61, 91)]
        assert steps["accuracy"] == [*range(1, 101)]
        assert (steps["once"], steps["reward"]) == ([1, 2], [5])
        curve = record.logged()["loss"][0]
        assert record.totals(LOGGED)[curve]["finite"] == 91
    writer.close()


def test_a_curve_is_cut_once_also_where_the_disk_was_full(disk: Disk, writer: RecordWriter) -> None:
    log(writer, "loss", 1, 3000, 1000.0)
    writer.add(structs.replace(attempt(1, step=0, lost=0), counts_from_zero=True))
    writer.commit()
    disk.fill()
    log(writer, "loss", 2001, 6000, 3000.0)
    with pytest.raises(RunsFolderError, match="disk is full"):
        writer.commit()
    disk.free()
    with read(writer) as record:
        assert record.totals(LOGGED)[record.logged()["loss"][0]]["finite"] == 6000


def test_a_window_across_the_step_is_removed_as_a_whole(writer: RecordWriter) -> None:
    writer.add(make_window(0, 10, 10))
    writer.add(make_window(0, 20, 10))
    writer.add(attempt(1, step=15, lost=20))
    writer.add(make_window(0, 20, 5))
    with read(writer) as record:
        assert list(record.curve(STEPS, 0)["step"]) == [10.0, 20.0]
        assert record.totals()[0]["steps"] == 15


def test_evaluations_and_checkpoints_are_removed_with_their_steps(writer: RecordWriter) -> None:
    add(writer, 1, 20)
    for step, best in ((10, True), (20, True)):
        writer.add(evaluated(step, top1=step / 100))
        writer.add(saved(step, best))
    writer.add(NonFinite(time=1020.0, rank=0, step=20, loss="nan"))
    writer.commit()
    with Record(writer.dir) as record:
        early = Follower(record)
        early.new_events()
        assert early.snapshot().best == evaluated(20, 0.2)
        writer.add(attempt(1, step=10, lost=20))
        writer.commit()
        # a follower receives the attempt, a new one sees nothing of what it discarded
        assert early.new_events() == [attempt(1, step=10, lost=20)]
        late = Follower(record)
        kinds = [type(event) for event in late.new_events()]
        assert kinds == [Evaluation, Saved, Attempt]
        for follower in (early, late):
            now = follower.snapshot()
            assert (now.step, now.last, now.best) == (10, evaluated(10, 0.1), evaluated(10, 0.1))
        assert record.evaluations() == [evaluated(10, 0.1)]
        found = collect_data(record)
        assert found["checkpoints"] == [saved(10, best=True)]
        assert record.summary()["eval"] == {"top1": 0.1, "samples": 100}
    with closing(sqlite3.connect(writer.dir / "metrics.db")) as db:
        undone = db.execute("SELECT body FROM events WHERE kind = 'undone' ORDER BY id").fetchall()
    assert [json.loads(body)["type"] for (body,) in undone] == ["evaluation", "saved", "nonfinite"]


def test_a_last_step_that_is_evaluated_and_saved_again_counts_once(writer: RecordWriter) -> None:
    add(writer, 1, 10)
    writer.add(evaluated(10))
    writer.add(saved(10))
    writer.add(attempt(1, step=10, lost=10))
    writer.add(evaluated(10))
    writer.add(saved(10))
    with read(writer) as record:
        assert record.evaluations() == [evaluated(10)]
        assert [event for _, event in record.events(kinds=["saved"])] == [saved(10)]
        assert record.summary()["steps_again"] == 0


def test_a_last_step_counts_once_if_another_supervisor_merges_the_rest(tmp_path: Path) -> None:
    journal = JournalWriter(create_run(tmp_path, CONFIG, word="far", plan=plan_here(CONFIG)))
    for event in (make_window(0, 5), evaluated(5), attempt(1, step=5, lost=5)):
        journal.add(event)
    journal.commit()
    first = Supervisor(journal.dir)
    first.journal.merge()
    first.writer.commit()
    journal.add(evaluated(5))
    journal.close()
    Supervisor(journal.dir).journal.recover()
    with Record(journal.dir) as record:
        assert len(record.evaluations()) == 1


def test_events_of_earlier_attempts_stay_visible(writer: RecordWriter) -> None:
    events = [
        Phase(time=1.0, rank=0, phase="training", step=9),
        Exited(time=1, rank=0, pid=5, code=1),
    ]
    for event in events:
        writer.add(event)
    writer.add(attempt(1, step=5, lost=1234))
    with read(writer) as record:
        *before, (_, last) = record.events()
        assert [event for _, event in before] == events
        assert last == attempt(1, step=5, lost=1234)
        assert describe_event(last) == (
            "attempt",
            "restarted after step 5, was at 1,234: rank 1 died",
        )
        assert "restarted 1 time, 1,229 steps repeated" in format_page(record)


def test_ranks_are_reset_by_an_attempt(writer: RecordWriter) -> None:
    for rank in (0, 1):
        writer.add(Hello(rank=rank, pid=10 + rank, host="a", device=f"cpu:{rank}"))
    add(writer, 1, 9)
    writer.add(Finished(time=1.0, rank=0, step=9))
    writer.add(Exited(time=1.0, rank=1, pid=11, code=-9))
    writer.add(attempt(1, step=4, lost=9))
    with read(writer) as record:
        for info in record.ranks():
            assert (info.step, info.phase, info.finished) == (4, "starting", False)
            assert (info.pid, info.code, info.device) == (0, None, f"cpu:{info.rank}")
    writer.add(Hello(rank=0, pid=20, host="b", device="cpu:0"))
    with read(writer) as record:
        assert [(info.pid, info.host) for info in record.ranks()] == [(20, "b"), (0, "a")]


def test_samples_are_kept_by_an_attempt(writer: RecordWriter) -> None:
    sample = HostSample(time=1009.0, cpu=5.0, memory_used=1.0, memory_total=2.0, load=0.1)
    writer.add(sample)
    add(writer, 1, 9)
    writer.add(attempt(1, step=4, lost=9))
    with read(writer) as record:
        assert record.latest(HOST) == {0: sample}


def test_a_full_disk_delays_an_attempt(disk: Disk, writer: RecordWriter) -> None:
    add(writer, 1, 2000)
    writer.commit()
    disk.fill()
    add(writer, 2001, 4000)
    writer.add(attempt(1, step=1500, lost=4000))
    add(writer, 1501, 4500)
    with pytest.raises(RunsFolderError, match="disk is full"):
        writer.commit()
    with Record(writer.dir) as record:
        assert record.totals()[0]["steps"] == 2000
    disk.free()
    with read(writer) as record:
        assert record.totals()[0]["steps"] == 4500
        assert sum(record.curve(STEPS, 0, points=10)["steps"]) == 4500


def test_removing_steps_reads_no_more_rows_than_it_deletes() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in STEPS.schema():
            db.execute(statement)
        appender = Appender(STEPS)
        appender.append(db, [make_window(rank, step) for rank in (0, 1) for step in range(1, 5000)])
        queries: list[str] = []
        db.set_trace_callback(queries.append)
        appender.discard(db, "step", 4900)
        db.set_trace_callback(None)
        assert read_totals(db, STEPS)[1]["steps"] == 4900
        assert len(queries) < 100
        for query in queries:
            plan = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")]
            assert not any(step.startswith("SCAN steps") for step in plan), (query, plan)


# --- concurrent readers -----------------------------------------------------------------------


def test_readers_never_see_half_of_an_attempt(writer: RecordWriter) -> None:
    add(writer, 1, 1000)
    writer.commit()
    stop, wrong = threading.Event(), list[object]()

    def look() -> None:
        with Record(writer.dir) as record:
            follower = Follower(record)
            while not stop.is_set():
                try:
                    ranks = record.curves(points=20).values()
                    steps = {sum(curve["steps"]) - curve["step"][-1] for curve in ranks}
                    steps |= {each["steps"] - each["step"] for each in record.totals().values()}
                    run = record.overall(points=30)
                    steps |= {len([value for value in run["step"] if isnan(value)])}
                    follower.new_events()
                    follower.snapshot()
                    if steps != {0}:
                        wrong.append(steps)
                except Exception as error:
                    wrong.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 60):
        writer.add(attempt(number, step=1000 - 7 * number, lost=1000))
        writer.commit()
        add(writer, 1001 - 7 * number, 1000)
        writer.commit()
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_an_export_during_which_an_attempt_began_fails(writer: RecordWriter) -> None:
    class Slow(io.StringIO):
        crossed = False

        def write(self, text: str) -> int:
            if text.startswith("0,1") and not self.crossed:
                self.crossed = True
                writer.add(attempt(1, step=10, lost=3000))
                writer.commit()
            return super().write(text)

    add(writer, 1, 3000)
    with read(writer) as record:
        with pytest.raises(DistrainError, match="export the run again"):
            export(record, "csv", Slow())
        out = io.StringIO()
        export(record, "csv", out)
        assert len(list(csv.DictReader(io.StringIO(out.getvalue())))) == 20


def test_an_export_contains_only_what_is_valid(writer: RecordWriter) -> None:
    add(writer, 1, 9)
    writer.add(evaluated(9))
    writer.add(attempt(1, step=4, lost=9))
    add(writer, 5, 6)
    out = io.StringIO()
    with read(writer) as record:
        export(record, "jsonl", out)
    kinds = [json.loads(line)["type"] for line in out.getvalue().splitlines()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"window": 12, "attempt": 1}


TWO_HUNDRED_STEPS = Facts(
    time=1000.0,
    train_samples=80,
    eval_samples=20,
    steps_per_epoch=10,
    total_steps=200,
    parameters=5,
    backend="gloo",
)


def set_running(writer: RecordWriter) -> None:
    facts = TWO_HUNDRED_STEPS
    writer.set_state(facts=facts, host="elsewhere", supervisor_pid=1, status="running")


def test_the_remaining_time_uses_the_pace_of_this_attempt(writer: RecordWriter) -> None:
    set_running(writer)
    add(writer, 1, 100)
    writer.add(attempt(1, step=90, lost=100, time=1130.0))
    with read(writer) as record:
        follower = Follower(record)
        follower.new_events()
        assert follower.snapshot().eta is None
        for step in range(91, 101):
            writer.add(make_window(0, step, time=1140.0 + step / 2))
            writer.add(make_window(1, step, time=1140.0 + step / 2))
        writer.commit()
        assert follower.snapshot().eta == pytest.approx(50.0)


def test_the_remaining_time_is_unknown_after_the_clock_was_set_back(writer: RecordWriter) -> None:
    set_running(writer)
    add(writer, 1, 100)
    for rank in range(2):
        writer.add(make_window(rank, 101, time=500.0))
    writer.commit()
    with read(writer) as record:
        follower = Follower(record)
        follower.new_events()
        assert follower.snapshot().eta is None


def test_the_remaining_time_leaves_out_a_stall(writer: RecordWriter) -> None:
    set_running(writer)
    for rank in range(2):  # the first step takes a night
        writer.add(make_window(rank, 1, time=30_000.0, seconds=29_000.0))
    writer.set_state(stall_ended=30_000.5)
    with read(writer) as record:
        follower = Follower(record)
        for step in range(2, 101):
            writer.add(make_window(0, step, time=30_000.5 + step / 2))
            writer.add(make_window(1, step, time=30_000.5 + step / 2))
        writer.commit()
        follower.new_events()
        assert follower.snapshot().eta == pytest.approx(50.0, rel=0.02)


# --- figures computed from samples -------------------------------------------------------------


def two_attempts(writer: RecordWriter, base: float, grown: Callable[[int], float]) -> None:
    """Add 60 steps, and 40 after the 50th, one per second; memory grows from each start."""
    begins = ((1000.0, 0, 60, 2**30), (2000.0, 50, 90, base))
    for begun, first, last, used in begins:
        if first:
            writer.add(attempt(1, step=first, lost=60, time=begun))
        for n in range(last - first):
            now = begun + n + 1
            for rank in (0, 1):
                writer.add(make_window(rank, first + n + 1, time=now))
            rss = used + grown(n)
            writer.add(RankSample(time=now + 0.5, rank=0, cpu=100.0, rss=rss, processes=1))
    writer.set_state(status="completed")


def test_memory_growth_is_measured_from_the_last_start(writer: RecordWriter) -> None:
    # given two attempts whose memory grows alike, the second from much less
    two_attempts(writer, 2**28, lambda n: n * 2**25)
    with read(writer) as record:
        found = diagnose(record)
    assert found.kind == "creeping"
    assert found.evidence.startswith("from 6")  # the second attempt: 256 MiB and 13 steps of 32 MiB


def test_caches_that_fill_after_a_start_are_not_memory_growth(writer: RecordWriter) -> None:
    two_attempts(writer, 2**30, lambda n: min(n, 16) * 2**25)
    with read(writer) as record:
        assert diagnose(record).kind != "creeping"


def test_a_comparison_uses_utilisation_and_energy_of_the_last_attempt(
    writer: RecordWriter,
) -> None:
    def samples(begun: float, uuid: str, energy: float, busy: float) -> None:
        for n in range(21):
            at, joules = begun + n, energy + 80.0 * n
            writer.add(
                GpuSample(time=at, gpu=0, uuid=uuid, name="H", utilisation=busy, energy=joules)
            )

    add(writer, 1, 20)
    samples(1000.0, "GPU-a", 5e6, 10.0)
    writer.add(attempt(1, step=10, lost=20, time=2000.0))
    for step in range(11, 31):
        for rank in (0, 1):
            writer.add(make_window(rank, step, time=1990.0 + step, seconds=1.0))
    samples(2000.0, "GPU-b", 1e6, 90.0)
    writer.set_state(status="completed", attempts=1)
    with read(writer) as record:
        found = compute_figures(record)
        assert found.steps == 30
        assert found.gpu == 90.0
        assert found.joules_per_sample == pytest.approx(80.0 * 20 / (2 * 4 * 20))
        (warning, *_) = compare([record]).warnings
        assert "was restarted 1 time" in warning
