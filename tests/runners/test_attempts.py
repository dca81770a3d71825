"""Ranks that are started anew go on in the same record: what is later than the checkpoint is taken
back, and every number is as if it had never been.
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
from fabricated import a_window
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from runners.appender import Appender
from runners.cli.lines import in_words
from runners.cli.showing import everything, page
from runners.comparison.figures import figures
from runners.comparison.of_runs import compare
from runners.config import RunConfig
from runners.diagnosis import diagnose
from runners.errors import DistrainError, RunsFolderError
from runners.events import (
    Attempt,
    Evaluation,
    Event,
    Exited,
    Facts,
    Finished,
    GpuSample,
    Hello,
    HostSample,
    Metric,
    NonFinite,
    Notice,
    Phase,
    RankSample,
    Saved,
    Window,
)
from runners.export import export
from runners.journal import Journal
from runners.plan import make_plan
from runners.record import Record, RecordWriter, create_run
from runners.series import HOST, STEPS
from runners.snapshot import Follower
from runners.state import JOURNAL
from runners.supervisor import Supervisor

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
    return RecordWriter(create_run(runs_dir, CONFIG, word="ddp", plan=make_plan(CONFIG)))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RecordWriter]:
    made = a_writer(tmp_path)
    yield made
    made.close()


def add(writer: RecordWriter, first: int, last: int, **changes: Any) -> None:
    """A window for each of these steps, on two ranks."""
    for step in range(first, last + 1):
        for rank in (0, 1):
            writer.add(a_window(rank, step, **changes))


@contextmanager
def read(writer: RecordWriter) -> Iterator[Record]:
    writer.commit()
    with Record(writer.dir) as record:
        yield record


# --- everything at random ----------------------------------------------------------------------


class Story:
    """What ranks say over several attempts, and what of it is left."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = self.rng.randint(1, 3)
        self.said: list[Event] = []
        self.left: list[Window | Evaluation] = []
        for number in range(1, self.rng.randint(1, 5)):
            kept, reached = self._attempt()
            self.said.append(attempt(number, kept, reached, time=10_000.0 * number))
            self.left = [each for each in self.left if each.step <= kept]
        self._attempt()

    def _attempt(self) -> tuple[int, int]:
        """Stretches between checkpoints, the last one cut short; gives checkpoint and last step."""
        kept = max((each.step for each in self.left), default=0)
        reached = [kept] * self.world
        for stretch in range(self.rng.randint(1, 5)):
            if stretch and self.rng.random() < 0.7:
                kept = reached[0]
                self.said.append(saved(kept))
            whole = self.rng.randint(1, 40)
            reached = [self._stretch(rank, at, whole) for rank, at in enumerate(reached)]
            if self.rng.random() < 0.5:
                self._say(evaluated(reached[0]))
        cut = [self._stretch(rank, at, self.rng.randint(0, 30)) for rank, at in enumerate(reached)]
        return kept, max(cut)

    def _stretch(self, rank: int, begin: int, steps: int) -> int:
        end, step = begin + steps, begin
        while step < end:
            width = min(self.rng.randint(1, 4), end - step)
            step += width
            time = 1000.0 + len(self.said)
            warm = step > begin + 3
            seconds = self.rng.uniform(0.1, 1)
            self._say(
                a_window(rank, step, width, time=time, seconds=seconds, warmup=not warm, epoch=0)
            )
        return end

    def _say(self, event: Window | Evaluation) -> None:
        self.said.append(event)
        self.left.append(event)


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
def test_what_is_left_is_a_record_of_the_steps_that_count(seed: int) -> None:
    story = Story(seed)
    with tempfile.TemporaryDirectory() as name:
        lived, plain = a_writer(Path(name)), a_writer(Path(name))
        with Record(lived.dir) as record, Record(plain.dir) as wanted:
            follower = Follower(record)
            for event in story.said:
                if isinstance(event, Attempt):
                    lived.add(event)
                else:
                    lived.add(event)
                if story.rng.random() < 0.05:
                    lived.commit()
                    follower.news()
                    follower.snapshot()
            for event in story.left:
                plain.add(event)
            lived.commit()
            plain.commit()
            assert tables(record) == tables(wanted)
            # so sees who has looked on all the time
            follower.news()
            assert follower.evaluations == wanted.evaluations()
            # and the levels go on to agree with what comes then
            for rank in range(story.world):
                last = record.latest()[rank].step if rank in record.latest() else 0
                for step in range(last + 1, last + 100):
                    lived.add(a_window(rank, step))
                    plain.add(a_window(rank, step))
            lived.commit()
            plain.commit()
            assert tables(record) == tables(wanted)
        lived.close()
        plain.close()


def heard_by(supervisor: Supervisor) -> list[Any]:
    """All that was heard, but for when."""
    supervisor.writer.commit()
    with Record(supervisor.folder) as record:
        said = [
            (type(event), getattr(event, "step", None), getattr(event, "lost", None))
            for _, event in record.events()
            if not isinstance(event, Notice)
        ]
        ranks = [structs.replace(rank, last_seen=0.0) for rank in record.ranks()]
        return [said, ranks, record.state.attempts, record.state.facts, *tables(record)]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_journal_that_is_merged_by_several_is_merged_once(seed: int) -> None:
    story = Story(seed)
    with tempfile.TemporaryDirectory() as name:
        plan = make_plan(CONFIG)
        shared, alone = (create_run(Path(name), CONFIG, word="far", plan=plan) for _ in "12")
        journal, said, one = Journal(shared), iter(story.said), Supervisor(shared)
        one.talk.notice("only the first knows")
        one.writer.commit()
        while part := list(islice(said, story.rng.randint(1, 60))):
            for event in part:
                journal.add(event)
            journal.commit()
            if story.rng.random() < 0.4:  # and the one before is killed
                one = Supervisor(shared)
                one.take_up()
            one.hear_journal()
            if story.rng.random() < 0.5:
                one.writer.commit()
        journal.close()
        shutil.copy(shared / JOURNAL, alone)
        another = Supervisor(alone)
        another.hear_journal()
        assert heard_by(one) == heard_by(another)
        with Record(shared) as record:
            told = [event.text for _, event in record.events(kinds=["notice"])]  # type: ignore
        assert told.count("only the first knows") == 1


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


def test_what_was_before_and_after_in_one_commit_is_told_apart(writer: RecordWriter) -> None:
    add(writer, 1, 9)
    writer.add(attempt(1, step=4, lost=9))
    add(writer, 5, 6)
    writer.add(attempt(2, step=4, lost=6))
    add(writer, 5, 7)
    with read(writer) as record:
        assert list(record.overall()["step"]) == [1, 2, 3, 4, 5, 6, 7]
        assert [each.number for each in record.attempts()] == [1, 2]
        assert record.summary()["steps_again"] == 5 + 2


def test_without_a_checkpoint_all_is_taken_back(writer: RecordWriter) -> None:
    add(writer, 1, 100)
    writer.add(attempt(1, step=0, lost=100))
    with read(writer) as record:
        assert record.keys() == []
        assert len(record.overall()) == 0
        assert record.summary()["samples"] == 0
        assert Follower(record).snapshot().step == 0


def test_a_window_across_the_step_goes_as_a_whole(writer: RecordWriter) -> None:
    writer.add(a_window(0, 10, 10))
    writer.add(a_window(0, 20, 10))
    writer.add(attempt(1, step=15, lost=20))
    writer.add(a_window(0, 20, 5))
    with read(writer) as record:
        assert list(record.curve(STEPS, 0)["step"]) == [10.0, 20.0]
        assert record.totals()[0]["steps"] == 15


def test_evaluations_and_checkpoints_go_with_their_steps(writer: RecordWriter) -> None:
    add(writer, 1, 20)
    for step, best in ((10, True), (20, True)):
        writer.add(evaluated(step, top1=step / 100))
        writer.add(saved(step, best))
    writer.add(NonFinite(time=1020.0, rank=0, step=20, loss="nan"))
    writer.commit()
    with Record(writer.dir) as record:
        looking_on = Follower(record)
        looking_on.news()
        assert looking_on.snapshot().best == evaluated(20, 0.2)
        writer.add(attempt(1, step=10, lost=20))
        writer.commit()
        # one who looks on hears of the attempt, one who comes now sees nothing of what was before
        assert looking_on.news() == [attempt(1, step=10, lost=20)]
        come_now = Follower(record)
        kinds = [type(event) for event in come_now.news()]
        assert kinds == [Evaluation, Saved, Attempt]
        for follower in (looking_on, come_now):
            now = follower.snapshot()
            assert (now.step, now.last, now.best) == (10, evaluated(10, 0.1), evaluated(10, 0.1))
        assert record.evaluations() == [evaluated(10, 0.1)]
        found = everything(record)
        assert found["checkpoints"] == [saved(10, best=True)]
        assert record.summary()["eval"] == {"top1": 0.1, "samples": 100}
    with closing(sqlite3.connect(writer.dir / "metrics.db")) as db:
        undone = db.execute("SELECT body FROM events WHERE kind = 'undone' ORDER BY id").fetchall()
    assert [json.loads(body)["type"] for (body,) in undone] == ["evaluation", "saved", "nonfinite"]


def test_a_last_step_that_is_evaluated_and_saved_anew_counts_once(writer: RecordWriter) -> None:
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


def test_a_last_step_counts_once_also_where_another_merges_the_rest(tmp_path: Path) -> None:
    journal = Journal(create_run(tmp_path, CONFIG, word="far", plan=make_plan(CONFIG)))
    for event in (a_window(0, 5), evaluated(5), attempt(1, step=5, lost=5)):
        journal.add(event)
    journal.commit()
    first = Supervisor(journal.dir)
    first.hear_journal()
    first.writer.commit()
    journal.add(evaluated(5))
    journal.close()
    Supervisor(journal.dir).take_up()
    with Record(journal.dir) as record:
        assert len(record.evaluations()) == 1


def test_what_happened_stays_to_be_seen(writer: RecordWriter) -> None:
    said = [
        Phase(time=1.0, rank=0, phase="training", step=9),
        Exited(time=1, rank=0, pid=5, code=1),
    ]
    for event in said:
        writer.add(event)
    writer.add(attempt(1, step=5, lost=1234))
    with read(writer) as record:
        *before, (_, last) = record.events()
        assert [event for _, event in before] == said
        assert last == attempt(1, step=5, lost=1234)
        assert in_words(last) == ("attempt", "goes on after step 5, was at 1,234: rank 1 died")
        assert "started anew 1 time, 1,229 steps done again" in page(record)


def test_ranks_are_as_before_their_first_word(writer: RecordWriter) -> None:
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


def test_samples_are_of_times_and_stay(writer: RecordWriter) -> None:
    sample = HostSample(time=1009.0, cpu=5.0, memory_used=1.0, memory_total=2.0, load=0.1)
    writer.add(sample)
    add(writer, 1, 9)
    writer.add(attempt(1, step=4, lost=9))
    with read(writer) as record:
        assert record.latest(HOST) == {0: sample}


def test_a_full_disk_puts_it_off(writer: RecordWriter) -> None:
    add(writer, 1, 2000)
    writer.commit()
    writer._db.execute("PRAGMA max_page_count = 1")
    add(writer, 2001, 4000)
    writer.add(attempt(1, step=1500, lost=4000))
    add(writer, 1501, 4500)
    with pytest.raises(RunsFolderError, match="disk is full"):
        writer.commit()
    with Record(writer.dir) as record:
        assert record.totals()[0]["steps"] == 2000
    writer._db.execute("PRAGMA max_page_count = 100000")
    with read(writer) as record:
        assert record.totals()[0]["steps"] == 4500
        assert sum(record.curve(STEPS, 0, points=10)["steps"]) == 4500


def test_taking_back_reads_no_more_than_it_deletes() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in STEPS.schema():
            db.execute(statement)
        appender = Appender(STEPS)
        appender.append(db, [a_window(rank, step) for rank in (0, 1) for step in range(1, 5000)])
        queries: list[str] = []
        db.set_trace_callback(queries.append)
        appender.take_back(db, "step", 4900)
        db.set_trace_callback(None)
        assert STEPS.totals(db)[1]["steps"] == 4900
        assert len(queries) < 100
        for query in queries:
            plan = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")]
            assert not any(step.startswith("SCAN steps") for step in plan), (query, plan)


# --- who reads meanwhile -----------------------------------------------------------------------


def test_readers_never_see_half_of_it(writer: RecordWriter) -> None:
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
                    follower.news()
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


def test_an_export_that_an_attempt_has_crossed_says_so(writer: RecordWriter) -> None:
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
        with pytest.raises(DistrainError, match="export it again"):
            export(record, "csv", Slow())
        out = io.StringIO()
        export(record, "csv", out)
        assert len(list(csv.DictReader(io.StringIO(out.getvalue())))) == 20


def test_what_is_left_is_what_an_export_has(writer: RecordWriter) -> None:
    add(writer, 1, 9)
    writer.add(evaluated(9))
    writer.add(attempt(1, step=4, lost=9))
    add(writer, 5, 6)
    out = io.StringIO()
    with read(writer) as record:
        export(record, "jsonl", out)
    kinds = [json.loads(line)["type"] for line in out.getvalue().splitlines()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"window": 12, "attempt": 1}


def test_the_time_left_is_by_the_pace_of_this_attempt(writer: RecordWriter) -> None:
    facts = Facts(
        time=1000.0,
        train_samples=80,
        eval_samples=20,
        steps_per_epoch=10,
        total_steps=200,
        parameters=5,
        backend="gloo",
    )
    writer.set_state(facts=facts, host="elsewhere", supervisor_pid=1, status="running")
    add(writer, 1, 100)
    writer.add(attempt(1, step=90, lost=100, time=1130.0))
    with read(writer) as record:
        follower = Follower(record)
        follower.news()
        assert follower.snapshot().eta is None
        for step in range(91, 101):
            writer.add(a_window(0, step, time=1140.0 + step / 2))
            writer.add(a_window(1, step, time=1140.0 + step / 2))
        writer.commit()
        assert follower.snapshot().eta == pytest.approx(50.0)


# --- what is made of samples -------------------------------------------------------------------


def two_attempts(writer: RecordWriter, base: float, grown: Callable[[int], float]) -> None:
    """60 steps, and 40 from the 50th on, a step a second; memory grows from the start of each."""
    begins = ((1000.0, 0, 60, 2**30), (2000.0, 50, 90, base))
    for begun, first, last, used in begins:
        if first:
            writer.add(attempt(1, step=first, lost=60, time=begun))
        for n in range(last - first):
            now = begun + n + 1
            for rank in (0, 1):
                writer.add(a_window(rank, first + n + 1, time=now))
            rss = used + grown(n)
            writer.add(RankSample(time=now + 0.5, rank=0, cpu=100.0, rss=rss, processes=1))
    writer.set_state(status="completed")


def test_memory_creeps_from_the_last_start_on(writer: RecordWriter) -> None:
    # given two attempts whose memory grows alike, the second from much less
    two_attempts(writer, 2**28, lambda n: n * 2**25)
    with read(writer) as record:
        found = diagnose(record)
    assert found.kind == "creeping"
    assert found.evidence.startswith("from 6")  # of the second: 256 MiB and 13 steps of 32 MiB


def test_caches_that_fill_after_a_start_are_no_creep(writer: RecordWriter) -> None:
    two_attempts(writer, 2**30, lambda n: min(n, 16) * 2**25)
    with read(writer) as record:
        assert diagnose(record).kind != "creeping"


def test_a_comparison_takes_utilisation_and_energy_of_the_last_attempt(
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
            writer.add(a_window(rank, step, time=1990.0 + step, seconds=1.0))
    samples(2000.0, "GPU-b", 1e6, 90.0)
    writer.set_state(status="completed", attempts=1)
    with read(writer) as record:
        found = figures(record)
        assert found.samples == 2 * 4 * 30
        assert found.gpu == 90.0
        assert found.joules_per_sample == pytest.approx(80.0 * 20 / (2 * 4 * 20))
        (warning, *_) = compare([record]).warnings
        assert "was started anew 1 time on the way" in warning
