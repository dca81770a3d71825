"""A growing journal is read in pieces, and returns what was written."""

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

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import (
    Attempt,
    GpuSample,
    HostSample,
    Notice,
    RankSample,
    Window,
)
from distrain.runners.records.folder import create_run
from distrain.runners.records.journal import JournalReader, JournalWriter
from distrain.runners.records.reader import Record
from distrain.runners.records.run_folder import JOURNAL
from tests.support.records import make_window

ITEMS = [
    make_window(loss_sum=None, loss_min=None, loss_max=None),
    Notice(time=2.0, text="two\nlines"),
    HostSample(time=2.0, host=1, cpu=3.0, memory_used=4.0, memory_total=5.0, load=0.5),
    GpuSample(time=2.0, gpu=1003, uuid="GPU-1", name="H200", processes={7: None}),
    RankSample(time=2.0, rank=1, cpu=99.0, rss=1e9, processes=2),
    Attempt(time=2.0, number=1, step=5, lost=8, reason="NODE_FAIL"),
]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalWriter]:
    config = RunConfig.from_dict({"devices": "cpu:2"})
    journal = JournalWriter(create_run(tmp_path, config, plan=plan_here(config), word="far"))
    yield journal
    journal.close()


def test_everything_is_read_in_order_and_once(journal: JournalWriter) -> None:
    reader = JournalReader(journal.dir)
    assert list(reader.read_new()) == []
    for item in ITEMS[:3]:
        journal.add(item)
    journal.commit()
    assert list(reader.read_new()) == ITEMS[:3]
    for item in ITEMS[3:]:
        journal.add(item)
    journal.close()
    assert list(reader.read_new()) == ITEMS[3:]
    assert list(JournalReader(journal.dir).read_new()) == ITEMS


def test_an_incomplete_line_is_read_later(journal: JournalWriter) -> None:
    journal.add(ITEMS[1])
    journal.commit()
    path = journal.dir / JOURNAL
    line = path.read_bytes()
    path.write_bytes(line + line[:-9])
    reader = JournalReader(journal.dir)
    assert list(reader.read_new()) == [ITEMS[1]]
    with path.open("ab") as file:
        file.write(line[-9:])
    assert list(reader.read_new()) == [ITEMS[1]]


def test_only_state_that_is_stored_nowhere_else_is_kept(journal: JournalWriter) -> None:
    journal.set_state(status="running", hosts=["n1", "n2"])
    journal.close()
    assert list(JournalReader(journal.dir).read_new()) == [{"hosts": ["n1", "n2"]}]
    assert journal.state.status == "running"


def test_a_second_journal_continues_where_the_first_ended(journal: JournalWriter) -> None:
    journal.add(ITEMS[0])
    journal.close()
    later = JournalWriter(journal.dir)
    later.add(ITEMS[1])
    later.close()
    assert list(JournalReader(journal.dir).read_new()) == ITEMS[:2]


def test_a_full_disk_loses_nothing(journal: JournalWriter) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    journal.add(ITEMS[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(DistrainError, match=JOURNAL):
            journal.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (journal.dir / JOURNAL).stat().st_size == 10
    assert journal.pending
    journal.close()
    assert not journal.pending
    assert list(JournalReader(journal.dir).read_new()) == [ITEMS[1]]


MERGE = """
import sys
from pathlib import Path
from distrain.runners.supervision import journal_merge, supervisor
journal_merge.MAX_UNCOMMITTED = 50
one = supervisor.Supervisor(Path(sys.argv[1]))
if not one.writer.recovered:
    one.coordinator.run.notice("only the first knows")
    one.writer.commit()
print("begun", flush=True)
if one.writer.recovered:
    one.journal.recover()
one.journal.merge()
one.writer.close()
print("merged", flush=True)
"""


def test_every_sample_is_merged_once_however_often_supervisors_are_killed(
    journal: JournalWriter,
) -> None:
    for step in range(1, 3001):
        for rank in range(2):
            journal.add(make_window(rank, step))
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
        texts = [event.text for _, event in record.events(kinds=["notice"])]  # type: ignore[union-attr]
    assert texts.count("only the first knows") == 1


def test_an_incomplete_line_of_one_attempt_does_not_affect_the_next(journal: JournalWriter) -> None:
    journal.add(ITEMS[0])
    journal.add(ITEMS[1])
    journal.close()
    path = journal.dir / JOURNAL
    path.write_bytes(path.read_bytes()[:-9])
    later = JournalWriter(journal.dir)
    later.add(ITEMS[2])
    later.close()
    reader = JournalReader(journal.dir)
    first, damage, last = reader.read_new()
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
def test_damage_is_reported_once_and_the_rest_is_read(
    journal: JournalWriter, damage: bytes
) -> None:
    path = journal.dir / JOURNAL
    journal.add(ITEMS[1])
    journal.commit()
    whole = path.read_bytes()
    path.write_bytes((damage + b"\n") * 2 + whole)
    reader = JournalReader(journal.dir)
    told, item = reader.read_new()
    assert isinstance(told, Notice)
    assert item == ITEMS[1]
    with path.open("ab") as file:
        file.write(damage + b"\n" + whole)
    assert list(reader.read_new()) == [ITEMS[1]]


def test_windows_are_read_as_windows(journal: JournalWriter) -> None:
    journal.add(ITEMS[0])
    journal.close()
    assert isinstance(next(JournalReader(journal.dir).read_new()), Window)


def test_a_link_is_not_read_as_a_journal(journal: JournalWriter, tmp_path: Path) -> None:
    journal.add(make_window(0, 1))
    journal.close()
    path = journal.dir / JOURNAL
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert list(JournalReader(journal.dir).read_new()) == []
