"""Files of an older version open, and today's version writes the same names and values.

`data/` was written by that version. A test that fails here means that a name or a type in a stored
format has changed: change it back, or read both.
"""

from __future__ import annotations

import io
import json
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from distrain.runners.analysis.comparison.recorded_runs import compare
from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.bench.definition import Definition
from distrain.runners.bench.folder import read_bench_state, read_definition, write_bench_state
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import Event, Failure, Job, Stop, as_dict, decode, encode
from distrain.runners.records.export import export
from distrain.runners.records.folder import create_run
from distrain.runners.records.journal import JournalReader, JournalWriter
from distrain.runners.records.meta import read_valid_meta, write_meta
from distrain.runners.records.reader import Record
from distrain.runners.records.run_folder import JOURNAL
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.state import read_state, write_state
from distrain.runners.records.timeseries.series import STEPS
from distrain.runners.records.writer import RecordWriter
from tests.support.older import COMPLETED, DATA, WITH_JOURNAL, copy_records

RECORDS = (COMPLETED, WITH_JOURNAL)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return copy_records(tmp_path / "runs")


@pytest.fixture
def completed(runs_dir: Path) -> Record:
    return Record(runs_dir / COMPLETED)


def test_a_completed_run_has_its_figures(completed: Record) -> None:
    assert (completed.status, completed.name) == ("completed", "before")
    summary = completed.summary()
    assert (summary["epochs"], summary["steps"], summary["samples"]) == (2, 8, 512)
    assert summary["eval"]["top1"] == 0.484375
    assert [info.step for info in completed.ranks()] == [8, 8]
    assert {rank: total["samples"] for rank, total in completed.totals().items()} == {
        0: 256,
        1: 256,
    }
    assert list(completed.overall()["step"])[-1] == 8
    assert len(completed.evaluations()) == 2
    assert completed.last_checkpoint == completed.dir / "checkpoints" / "step-00000008.pt"


def test_a_completed_run_is_followed_diagnosed_and_compared(completed: Record) -> None:
    follower = Follower(completed)
    assert follower.new_events()
    snapshot = follower.snapshot()
    assert (snapshot.step, snapshot.fraction, snapshot.best) == (8, 1.0, completed.evaluations()[1])
    assert diagnose(completed).kind
    comparison = compare([completed, Record(completed.runs_dir / WITH_JOURNAL)])
    assert [candidate.name for candidate in comparison.candidates] == ["before", "journal before"]


def test_the_summary_can_be_computed_again(completed: Record) -> None:
    stored = completed.summary()
    state = read_state(completed.dir)
    write_state(completed.dir, msgspec.structs.replace(state, summary=None))
    assert Record(completed.dir).summary() == stored


def test_a_completed_run_is_exported(completed: Record) -> None:
    file = io.StringIO()
    export(completed, "csv", file)
    rows = [line.split(",") for line in file.getvalue().splitlines()]
    assert rows[0] == STEPS.fields
    file = io.StringIO()
    export(completed, "jsonl", file)
    found = [json.loads(line) for line in file.getvalue().splitlines()]
    assert {"hello", "facts", "evaluation", "saved", "finished", "window", "host", "procs"} <= {
        each["type"] for each in found
    }


@pytest.mark.parametrize("name", RECORDS)
def test_the_small_files_are_written_with_the_same_names(runs_dir: Path, name: str) -> None:
    folder = runs_dir / name
    write_state(folder, read_state(folder))
    write_meta(folder, read_valid_meta(folder))
    for file in ("run.json", "meta.json"):
        written, old = (
            json.loads((each / file).read_bytes()) for each in (folder, DATA / "records" / name)
        )
        assert_keeps(written, old)
    written = tomllib.loads(Record(folder).config.to_toml())
    assert_keeps(written, tomllib.loads((folder / "config.toml").read_text()))


def test_a_failed_run_has_its_error_and_its_job(runs_dir: Path) -> None:
    state = Record(runs_dir / WITH_JOURNAL).state
    assert state.error is not None
    assert (state.error.origin, state.error.secondary) == ("rank 1 on n2", [0])
    assert state.job is not None
    assert (state.job.id, state.job.state) == ("4711", "FAILED")


def test_every_entry_of_a_journal_is_read_and_written_with_the_same_bytes(runs_dir: Path) -> None:
    folder = runs_dir / WITH_JOURNAL
    before = (folder / JOURNAL).read_bytes()
    reader = JournalReader(folder)
    items = list(reader.read_new())
    assert reader.entries_read == len(items) == before.count(b"\n")
    (folder / JOURNAL).unlink()
    writer = JournalWriter(folder)
    for item in items:
        if isinstance(item, dict):
            writer.set_state(**item)
        else:
            writer.add(item)
    writer.close()
    assert (folder / JOURNAL).read_bytes() == before


def test_events_as_plain_data_have_the_names_of_the_protocol(runs_dir: Path) -> None:
    for item in JournalReader(runs_dir / WITH_JOURNAL).read_new():
        if isinstance(item, Event):
            plain = json.loads(msgspec.json.encode(as_dict(item)))
            assert plain.items() >= json.loads(encode(item)).items()


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            '{"type":"failure","time":1.0,"rank":0,"error":"E","message":"m","collateral":true}',
            Failure(time=1.0, rank=0, error="E", message="m", secondary=True),
        ),
        ('{"type":"stop","again":true}', Stop(restart=True)),
        (
            '{"type":"job","time":1.0,"id":"7","state":"PENDING","place":3}',
            Job(time=1.0, id="7", state="PENDING", jobs_ahead=3),
        ),
    ],
)
def test_messages_of_the_protocol_keep_their_names(line: str, event: Event) -> None:
    assert decode(line.encode()) == event
    assert encode(event).decode() == line + "\n"


def test_a_preset_is_read_and_written_with_the_same_bytes() -> None:
    text = (DATA / "preset.toml").read_text()
    config = RunConfig.from_toml(text)
    assert (config.launcher, config.slurm.nodes, config.ddp.comm_hook) == (
        "slurm",
        2,
        "bf16_compress",
    )
    assert config.to_toml(whole=False) == text


def test_a_bench_is_read_and_its_state_is_written_with_the_same_names(tmp_path: Path) -> None:
    for file in ("bench.toml", "bench.json"):
        (tmp_path / file).write_bytes((DATA / "bench" / file).read_bytes())
    definition = read_definition(tmp_path)
    assert list(definition.configs) == ["ddp", "allreduce"]
    assert Definition.from_toml(definition.to_toml()) == definition
    state = read_bench_state(tmp_path)
    assert (state.status, len(state.measurements)) == ("completed", 4)
    write_bench_state(tmp_path, state)
    written = json.loads((tmp_path / "bench.json").read_text())
    assert_keeps(written, json.loads((DATA / "bench" / "bench.json").read_text()))


def assert_keeps(written: Any, old: Any) -> None:
    """Check that all old names and values are written; there may be new names."""
    match old:
        case dict():
            assert old.keys() <= written.keys()
            for name, value in old.items():
                assert_keeps(written[name], value)
        case list():
            assert len(written) == len(old)
            for pair in zip(written, old, strict=True):
                assert_keeps(*pair)
        case _:
            assert written == old


LATER_PHASE = '{"type":"phase","time":1.0,"rank":0,"phase":"later"}'


def test_what_a_newer_version_wrote_is_called_that(tmp_path: Path) -> None:
    folder = create_run(tmp_path, RunConfig(), word="ddp")
    write_state(folder, msgspec.structs.replace(read_state(folder), status="completed"))
    config = folder / "config.toml"
    config.write_text(config.read_text() + "\n[later]\nx = 1\n")
    with pytest.raises(DistrainError, match=r"written by a newer version of distrain .*later"):
        assert Record(folder).config
    RecordWriter(folder).close()
    for kind, body in (("later", '{"type":"later"}'), ("phase", LATER_PHASE)):
        with closing(sqlite3.connect(folder / "metrics.db")) as db, db:
            db.execute("DELETE FROM events")
            db.execute("INSERT INTO events (kind, body) VALUES (?, ?)", (kind, body))
        with pytest.raises(DistrainError, match=r"written by a newer version of distrain .*later"):
            list(Record(folder).events())
    state = folder / "run.json"
    state.write_text(state.read_text().replace('"completed"', '"paused"', 1))
    with pytest.raises(DistrainError, match=r"written by a newer version of distrain .*paused"):
        Record(folder)
