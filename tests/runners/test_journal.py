"""A journal that grows is read piece by piece, and gives what was written."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from runners.config import RunConfig
from runners.errors import DistrainError
from runners.events import Attempt, GpuSample, HostSample, Notice, RankSample, Window
from runners.journal import Journal, Reader
from runners.plan import make_plan
from runners.record import Record
from runners.state import JOURNAL, create_run
from tests.fabricated import a_window

ITEMS = [
    a_window(loss_sum=None, loss_min=None, loss_max=None),
    Notice(time=2.0, text="two\nlines"),
    HostSample(time=2.0, host=1, cpu=3.0, memory_used=4.0, memory_total=5.0, load=0.5),
    GpuSample(time=2.0, gpu=1003, uuid="GPU-1", name="H200", processes={7: None}),
    RankSample(time=2.0, rank=1, cpu=99.0, rss=1e9, processes=2),
    Attempt(time=2.0, number=1, step=5, lost=8, reason="NODE_FAIL"),
]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    config = RunConfig.from_dict({"devices": "cpu:2"})
    journal = Journal(create_run(tmp_path, config, plan=make_plan(config), word="far"))
    yield journal
    journal.close()


def test_everything_comes_back_in_order_and_once(journal: Journal) -> None:
    reader = Reader(journal.dir)
    assert list(reader.news()) == []
    for item in ITEMS[:3]:
        journal.add(item)
    journal.commit()
    assert list(reader.news()) == ITEMS[:3]
    for item in ITEMS[3:]:
        journal.add(item)
    journal.close()
    assert list(reader.news()) == ITEMS[3:]
    assert list(Reader(journal.dir).news()) == ITEMS


def test_half_a_line_is_left_for_later(journal: Journal) -> None:
    journal.add(ITEMS[1])
    journal.commit()
    path = journal.dir / JOURNAL
    line = path.read_bytes()
    path.write_bytes(line + line[:-9])
    reader = Reader(journal.dir)
    assert list(reader.news()) == [ITEMS[1]]
    with path.open("ab") as file:
        file.write(line[-9:])
    assert list(reader.news()) == [ITEMS[1]]


def test_only_what_nobody_else_knows_of_the_state_is_kept(journal: Journal) -> None:
    journal.set_state(status="running", hosts=["n1", "n2"])
    journal.close()
    assert list(Reader(journal.dir).news()) == [{"hosts": ["n1", "n2"]}]
    assert journal.state.status == "running"


def test_a_second_journal_goes_on_where_the_first_ended(journal: Journal) -> None:
    journal.add(ITEMS[0])
    journal.close()
    later = Journal(journal.dir)
    later.add(ITEMS[1])
    later.close()
    assert list(Reader(journal.dir).news()) == ITEMS[:2]


def test_a_full_disk_loses_nothing(journal: Journal) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal.add(ITEMS[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(DistrainError, match=JOURNAL):
            journal.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (journal.dir / JOURNAL).stat().st_size == 10
    assert journal.waiting
    journal.close()
    assert not journal.waiting
    assert list(Reader(journal.dir).news()) == [ITEMS[1]]


MERGE = """
import sys
from pathlib import Path
from runners import supervisor
supervisor.MOST_WAITING = 50
one = supervisor.Supervisor(Path(sys.argv[1]))
if not one.writer.taken_up:
    one.talk.notice("only the first knows")
    one.writer.commit()
print("begun", flush=True)
if one.writer.taken_up:
    one.take_up()
one.hear_journal()
one.writer.close()
print("merged", flush=True)
"""


def test_every_sample_is_merged_once_whenever_its_supervisors_are_killed(
    journal: Journal,
) -> None:
    for step in range(1, 3001):
        for rank in range(2):
            journal.add(a_window(rank, step))
    journal.close()
    command, killed = [sys.executable, "-c", MERGE, str(journal.dir)], 0
    for seconds in count(0.02, 0.02):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            if process.stdout.readline():
                break
            killed += 1
    assert killed
    with Record(journal.dir) as record:
        assert [total["samples"] for total in record.totals().values()] == [12_000, 12_000]
        assert [total["steps"] for total in record.totals().values()] == [3000, 3000]
        told = [said.text for _, said in record.events(kinds=["notice"])]  # type: ignore[union-attr]
    assert told.count("only the first knows") == 1


def test_what_an_attempt_left_torn_costs_the_next_nothing(journal: Journal) -> None:
    journal.add(ITEMS[0])
    journal.add(ITEMS[1])
    journal.close()
    path = journal.dir / JOURNAL
    path.write_bytes(path.read_bytes()[:-9])
    later = Journal(journal.dir)
    later.add(ITEMS[2])
    later.close()
    reader = Reader(journal.dir)
    first, damage, last = reader.news()
    assert (first, last) == (ITEMS[0], ITEMS[2])
    assert isinstance(damage, Notice)
    assert damage.text == (
        "the job could not write all of journal.ndjson: what it recorded then is missing"
    )


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\0" * 100,
        b'{"kind":"event","bo{"kind":"state","body":{}}',
        b'{"kind":"event","body":{"type":"notice"}}',
        b'{"kind":"event","body":{"type":"of another version"}}',
        b'{"kind":"of another version","body":{}}',
        b'{"kind":"state","body":{"of another version":1}}',
        b"[" * 10_000,
        b"\xff",
    ],
)
def test_damage_is_told_once_and_the_rest_is_read(journal: Journal, damage: bytes) -> None:
    path = journal.dir / JOURNAL
    journal.add(ITEMS[1])
    journal.commit()
    whole = path.read_bytes()
    path.write_bytes((damage + b"\n") * 2 + whole)
    reader = Reader(journal.dir)
    told, item = reader.news()
    assert isinstance(told, Notice)
    assert item == ITEMS[1]
    with path.open("ab") as file:
        file.write(damage + b"\n" + whole)
    assert list(reader.news()) == [ITEMS[1]]


def test_windows_are_windows(journal: Journal) -> None:
    journal.add(ITEMS[0])
    journal.close()
    assert isinstance(next(Reader(journal.dir).news()), Window)
