"""A record has one writer and many readers, and stays valid if the writer is killed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil
import pytest

from distrain.runners.cli.run_result import mean_throughput
from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError, DistrainError, RunsFolderError
from distrain.runners.protocol.events import (
    Evaluation,
    Event,
    Exited,
    Facts,
    Failure,
    Finished,
    Frame,
    GpuSample,
    Hello,
    HostSample,
    Metric,
    Notice,
    Phase,
    RankSample,
    ScriptSettings,
    Stacks,
    ThreadStack,
)
from distrain.runners.records import stacks, supervisor_check
from distrain.runners.records import state as states
from distrain.runners.records.database import DATABASE
from distrain.runners.records.folder import create_run
from distrain.runners.records.meta import Meta
from distrain.runners.records.reader import Record, list_records
from distrain.runners.records.run_ids import new_run_id
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.stacks import read_saved_stacks
from distrain.runners.records.state import RunError
from distrain.runners.records.timeseries.run_curve import RANK_COLUMNS
from distrain.runners.records.timeseries.series import GPU, HOST, PROCS, STEPS
from distrain.runners.records.trash import find_in_trash, remove, require_unused, restore
from distrain.runners.records.writer import RecordWriter
from distrain.runners.runs import Run
from distrain.runners.system.devices import Device
from tests.support import ROOT
from tests.support.full_disk import Disk
from tests.support.records import RunBuilder, make_window

CONFIG = RunConfig.from_dict({"devices": "cpu:2", "train": {"epochs": 3}})


def facts(**changes: Any) -> Facts:
    plain = Facts(
        time=1.0,
        train_samples=80,
        eval_samples=20,
        steps_per_epoch=10,
        total_steps=30,
        parameters=5,
        backend="gloo",
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create_run(tmp_path, CONFIG, word="ddp", plan=plan_here(CONFIG))


@pytest.fixture
def writer(folder: Path) -> RecordWriter:
    return RecordWriter(folder)


def own_identity() -> dict[str, Any]:
    return {
        "supervisor_pid": os.getpid(),
        "supervisor_started": psutil.Process().create_time(),
    }


# --- the small files -------------------------------------------------------------------------


def test_a_run_id_sorts_by_time_and_names_the_preset() -> None:
    early, late = new_run_id("DDP on 2×GPU!", 0), new_run_id("amp", 10**9)
    assert early.startswith("19700101-000000-ddp-on-2-gpu-")
    assert early < late
    assert len({new_run_id("ddp", 0) for _ in range(20)}) == 20


def test_a_new_run_reads_as_starting_and_empty(folder: Path) -> None:
    with Record(folder) as record:
        assert (record.id, record.status, record.name) == (folder.name, "starting", "")
        assert record.config == CONFIG
        assert record.curves() == {}
        assert len(record.overall()) == 0
        assert list(record.events()) == []
        assert (record.ranks(), record.latest(), record.totals()) == ([], {}, {})
        assert record.summary()["samples_per_s"] is None


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunsFolderError, match=r"cannot write to the runs folder .*--runs-dir"):
        create_run(tmp_path / "file" / "runs", CONFIG, word="ddp")


def test_a_run_that_cannot_be_created_completely_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distrain.runners.records.folder.write_state", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create_run(tmp_path, CONFIG, word="ddp")
    assert list(tmp_path.iterdir()) == []


def test_a_supervisor_does_not_delay_changes_of_the_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(time, "sleep", refuse)
    supervisor = os.open(folder, os.O_RDONLY)
    fcntl.flock(supervisor, fcntl.LOCK_EX)
    try:
        assert Record(folder).set_meta(name="x").name == "x"
    finally:
        os.close(supervisor)


def test_changes_of_several_processes_at_once_are_all_kept(folder: Path) -> None:
    # Pause between reading and writing, where another process could write.
    program = """
import sys, time
from pathlib import Path
from distrain.runners.records import meta
read = meta.read_valid_meta
meta.read_valid_meta = lambda folder: (read(folder), time.sleep(0.2))[0]
sys.stdin.read()
meta.change_meta(Path(sys.argv[1]), **{sys.argv[2]: "x"})
"""
    arguments = [sys.executable, "-c", program, str(folder)]
    writers = [
        subprocess.Popen([*arguments, name], stdin=subprocess.PIPE) for name in ("name", "notes")
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait() for writer in writers] == [0, 0]
    meta = Record(folder).meta
    assert (meta.name, meta.notes) == ("x", "x")


def test_a_value_of_another_type_leaves_what_people_added(folder: Path) -> None:
    Record(folder).set_meta(name="best", tags=["a"])
    with pytest.raises(ConfigError, match=r"cannot be written to meta\.json"):
        Record(folder).set_meta(tags="b")
    assert Record(folder).meta.tags == ["a"]


def test_notes_on_a_run_in_the_trash_are_refused_with_the_command_that_restores_it(
    folder: Path,
) -> None:
    record = Record(folder)
    (folder.parent / states.TRASH).mkdir()
    folder.rename(folder.parent / states.TRASH / folder.name)
    with pytest.raises(DistrainError, match=f"`distrain rm --undo {folder.name}` restores it"):
        record.set_meta(name="best")


def test_notes_are_kept_and_a_broken_file_of_notes_is_ignored(folder: Path) -> None:
    Record(folder).set_meta(name="best", tags=["a"])
    meta = folder / "meta.json"
    meta.write_text(meta.read_text().replace("{", '{"later": 1e400,', 1))
    assert Record(folder).set_meta(pinned=True).name == "best"
    assert '"later": 1e400,' in meta.read_text()  # of a newer version
    assert Record(folder).name == "best"
    (folder / "meta.json").write_text("{")
    assert Record(folder).meta == Meta()


def test_control_characters_in_stored_notes_are_removed(folder: Path) -> None:
    notes = {"name": "\x1b[31mred\x07", "notes": "one\ntwo\x1b", "tags": ["\x1b[2J", "fine 👨‍👩"]}
    (folder / "meta.json").write_text(json.dumps(notes))
    meta = Record(folder).meta
    assert (meta.name, meta.notes) == ("red·", "one\ntwo·")
    assert meta.tags == ["·[2J", "fine 👨‍👩"]


@pytest.mark.parametrize("name", ["run.json", "meta.json"])
def test_a_byte_that_is_not_utf8_costs_one_sentence(folder: Path, name: str) -> None:
    Record(folder).set_meta(name="best")
    path = folder / name
    path.write_bytes(path.read_bytes().replace(b'": "', b'": "\xff', 1))
    errors: list[DistrainError] = []
    found = list_records(folder.parent, on_error=errors.append)
    if name == "meta.json":
        assert [record.name for record in found] == [""]
    else:
        assert "its run.json is broken (byte" in str(errors[0])
        assert found == []


@pytest.mark.parametrize("name", ["run.json", "meta.json", "config.toml", "metrics.db"])
@pytest.mark.parametrize("is_link", [True, False], ids=["link", "pipe"])
def test_a_reader_neither_follows_links_nor_waits_for_pipes(
    tmp_path: Path, name: str, is_link: bool
) -> None:
    folder = RunBuilder(tmp_path).steps(2).note(name="mine").end().dir
    path = folder / name
    moved = tmp_path / "elsewhere"
    path.rename(moved)
    path.symlink_to(moved) if is_link else os.mkfifo(path)
    if name == "meta.json":
        assert Record(folder).meta == Meta()
        return
    problem = "is a symbolic link" if is_link else "is not a regular file"
    with pytest.raises(DistrainError, match=problem):
        Record(folder).totals() if name == "metrics.db" else Record(folder).config.to_toml()


def test_an_empty_config_is_not_taken_for_one_with_all_defaults(tmp_path: Path) -> None:
    folder = RunBuilder(tmp_path).steps(2).end().dir
    (folder / "config.toml").write_text("")
    with pytest.raises(DistrainError, match=r"its config\.toml is empty"):
        Record(folder).config.to_toml()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW v AS SELECT 1",
        "CREATE VIRTUAL TABLE v USING rtree(id, low, high)",
        "ALTER TABLE events ADD COLUMN more TEXT AS (hex(zeroblob(400000000)))",
        "CREATE VIRTUAL TABLE v USING rtree(id, low, high); PRAGMA writable_schema = ON; "
        "UPDATE sqlite_master SET sql = replace(sql, 'CREATE ', 'CREATE  ') WHERE name = 'v'",
    ],
)
def test_a_database_that_computes_what_is_read_is_refused(
    folder: Path, writer: RecordWriter, statement: str
) -> None:
    writer.close()
    db = sqlite3.connect(folder / "metrics.db", isolation_level=None)
    db.executescript(statement)
    db.close()
    with pytest.raises(DistrainError, match="generated columns"):
        Record(folder).totals()


def test_a_value_that_distrain_never_writes_is_not_loaded(
    folder: Path, writer: RecordWriter
) -> None:
    writer.close()
    db = sqlite3.connect(folder / "metrics.db", isolation_level=None)
    db.execute("INSERT INTO events VALUES (1, 1.0, 'notice', 0, 0, zeroblob(20000000))")
    db.close()
    with pytest.raises(DistrainError, match="too big"):
        list(Record(folder).events())


def test_of_a_run_that_stalls_for_days_the_newest_stacks_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "MOST_KEPT", 300)
    for rank in range(20):
        frames = [Frame("train.py", 3, "load")]
        thread = ThreadStack(name="MainThread", frames=frames)
        stacks.append_stacks(folder, [Stacks(time=1.0, rank=rank, threads=[thread])])
    assert "rank 19" in read_saved_stacks(folder)
    assert sum(each.stat().st_size for each in (folder / "logs").glob("stacks*")) < 1000


def test_stacks_are_not_read_through_a_link(folder: Path) -> None:
    outside = folder.parent / "other"
    outside.write_text("secret")
    (folder / "logs" / "stacks.log").symlink_to(outside)
    assert read_saved_stacks(folder) == ""


def test_a_checkpoint_outside_of_the_record_is_not_resumed(folder: Path) -> None:
    outside = folder.parent / "other.pt"
    outside.touch()
    (folder / "checkpoints" / "last.pt").symlink_to(outside)
    assert Record(folder).last_checkpoint is None


def test_a_run_whose_newest_checkpoint_was_deleted_resumes_from_the_one_before(
    folder: Path,
) -> None:
    checkpoints = folder / "checkpoints"
    for step in (4, 8, 12):
        (checkpoints / f"step-{step:08d}.pt").touch()
    (checkpoints / "last.pt").symlink_to("step-00000012.pt")
    record = Record(folder)
    assert record.last_checkpoint == checkpoints / "step-00000012.pt"
    record.last_checkpoint.unlink()
    assert record.last_checkpoint == checkpoints / "step-00000008.pt"


@pytest.mark.parametrize(
    ("keep", "own", "start"),
    [
        (1, False, "parent.pt"),
        (1, True, "checkpoints/step-00000004.pt"),
        (0, False, None),
        (1, False, None),  # the parent was removed
    ],
)
def test_a_run_without_a_checkpoint_of_its_own_resumes_from_the_one_with_which_it_began(
    keep: int, own: bool, start: str | None, tmp_path: Path
) -> None:
    if start or not keep:
        (tmp_path / "parent.pt").touch()
    changes = {"checkpoint.load": str(tmp_path / "parent.pt"), "checkpoint.keep": keep}
    run = RunBuilder(tmp_path, **changes).end("failed")
    if own:
        (run.dir / "checkpoints" / "step-00000004.pt").touch()
    if start is None:
        gone = "; rerun" if keep == 0 else r": .*parent\.pt, with which it began, is gone; rerun"
        with pytest.raises(DistrainError, match=f"has no checkpoint to resume from{gone}"):
            Run(Record(run.dir)).resume_configs()
    else:
        [config] = Run(Record(run.dir)).resume_configs()
        assert config.checkpoint.load == str((run.dir if own else tmp_path) / start)


def test_a_folder_with_control_characters_is_no_record(folder: Path) -> None:
    odd = folder.rename(folder.with_name("a\x1b[2J"))
    with pytest.raises(DistrainError, match="its name has control characters; rename"):
        Record(odd)


def test_parts_of_a_provenance_with_other_types_are_left_out(folder: Path) -> None:
    state = json.loads((folder / "run.json").read_text())
    state["provenance"] = {"git": 5, "cwd": ["x"], "versions": {"torch": "2\x1b[2J"}}
    state["waiting_for"] = ["a\x1b]0;title\x07\x9b"]
    (folder / "run.json").write_text(json.dumps(state))
    found = Record(folder).state
    assert found.provenance == {"versions": {"torch": "2·[2J"}}
    assert found.waiting_for == ["a·]0;title··"]


@pytest.mark.parametrize("value", [None, b"\xff", "x", 2**60, 9e999])
def test_rows_with_values_of_other_types_are_one_sentence(tmp_path: Path, value: Any) -> None:
    folder = RunBuilder(tmp_path).steps(20).end().dir
    with sqlite3.connect(folder / "metrics.db") as db:
        db.execute("UPDATE steps SET steps = ?", (value,))
    db.close()
    readers: list[Callable[[Record], object]] = [
        lambda record: record.latest(),
        lambda record: [*record.raw(STEPS, 0)],
        lambda record: [*record.samples(STEPS, 0)],
    ]
    with Record(folder) as record:
        for read in readers:
            with pytest.raises(DistrainError, match=r"its metrics\.db cannot be read \(a row of"):
                read(record)


def test_a_new_note_leaves_other_notes_unchanged(folder: Path) -> None:
    Record(folder).set_meta(notes="plan:\n  - first   item")
    Record(folder).set_meta(pinned=True)
    assert Record(folder).meta.notes == "plan:\n  - first   item"


def test_a_broken_note_is_not_replaced(folder: Path) -> None:
    (folder / "meta.json").write_text('{"notes": "precious",,')
    with pytest.raises(DistrainError, match="is broken: fix or remove it"):
        Record(folder).set_meta(pinned=True)
    assert "precious" in (folder / "meta.json").read_text()


@pytest.mark.parametrize(
    "odd",
    [{"eval": "hello"}, {"eval": [1, 2]}, {"eval": {"top1": "x"}}, {"samples_per_s": "x"}],
)
def test_an_invalid_summary_is_computed_again(odd: dict[str, Any], folder: Path) -> None:
    state = json.loads((folder / "run.json").read_text())
    summary = {"run_id": "a", "strategy": "ddp", "eval": None, **odd}
    state |= {"status": "completed", "summary": summary}
    (folder / "run.json").write_text(json.dumps(state))
    summary = Record(folder).summary()
    assert (summary["run_id"], summary["eval"]) == (folder.name, None)


@pytest.mark.parametrize("notes", [{"name": "\x1b[2J"}, {"notes": "a\n\x07"}, {"tags": ["a\nb"]}])
def test_control_characters_in_new_notes_are_refused(folder: Path, notes: dict[str, Any]) -> None:
    Record(folder).set_meta(name="fine", notes="two\nlines ✓")
    with pytest.raises(ConfigError, match="must be printable text, not"):
        Record(folder).set_meta(**notes)
    assert Record(folder).name == "fine"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "is not a record: there is no run.json in it"),
        ("{", "is not a record: its run.json is broken"),
        ('{"run_id": "a"}', "is not a record: its run.json is broken"),
        ('{"format": 2}', r"was written by a newer distrain \(format 2, this one reads format 1\)"),
        ('{"format": 0}', "was written by an older distrain"),
    ],
)
def test_a_folder_that_is_not_a_record_is_reported(
    folder: Path, text: str | None, sentence: str
) -> None:
    path = folder / "run.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DistrainError, match=sentence):
        Record(folder)


@pytest.mark.parametrize("text", [None, "{"])
def test_a_state_that_a_supervisor_will_write_again_stays_what_it_was(
    folder: Path, writer: RecordWriter, text: str | None
) -> None:
    child = subprocess.Popen(["sleep", "600"])
    started = psutil.Process(child.pid).create_time()
    writer.set_state(status="running", supervisor_pid=child.pid, supervisor_started=started)
    record = Record(folder)
    path = folder / "run.json"
    path.unlink() if text is None else path.write_text(text)
    assert record.status == "running"
    child.kill()
    child.wait()
    with pytest.raises(DistrainError, match="is not a record"):
        _ = record.status


def test_a_missing_folder_and_a_broken_database_are_reported(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(DistrainError, match=r"there is no folder .*nothing"):
        Record(tmp_path / "nothing")
    (folder / "metrics.db").write_text("this is no database, whatever its name says" * 9)
    with pytest.raises(DistrainError, match=r"is not a record: its metrics\.db"):
        Record(folder).curves()


def test_state_changes_are_seen_by_an_open_reader(writer: RecordWriter) -> None:
    record = Record(writer.dir)
    writer.set_state(status="running", **own_identity())
    assert (record.status, record.live) == ("running", True)
    writer.set_state(status="completed", reason="all epochs are done")
    assert record.state.reason == "all epochs are done"
    assert not record.live
    writer.close()


def test_a_state_file_is_never_seen_half_written(writer: RecordWriter) -> None:
    done = threading.Event()

    def write() -> None:
        for number in range(100):
            writer.set_state(reason="x" * number * 100)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        Record(writer.dir)
    thread.join()
    assert sorted(path.name for path in writer.dir.glob(".*")) == []
    writer.close()


# --- a supervisor that has died -----------------------------------------------------------------


def test_a_live_run_whose_supervisor_died_reads_as_failed(writer: RecordWriter) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(child.pid).create_time()
    writer.set_state(status="running", supervisor_pid=child.pid, supervisor_started=started)
    record = Record(writer.dir)
    assert record.status == "running"
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert record.status == "failed"  # a zombie is dead
    child.communicate()
    state = record.state
    assert state.error is not None
    assert (state.status, state.error.type) == ("failed", "SupervisorLost")
    assert (
        state.reason
        == "the supervisor exited unexpectedly (killed?); data up to that point is kept"
    )
    crash = "import faulthandler, signal; faulthandler.enable(); signal.raise_signal(signal.SIGBUS)"
    with (writer.dir / "logs" / "supervisor.log").open("w") as log:
        subprocess.run([sys.executable, "-c", crash], stderr=log)
    assert record.state.error == msgspec.structs.replace(state.error, message=record.state.reason)
    assert record.state.reason == (
        "the supervisor was killed by SIGBUS (logs/supervisor.log shows where); data up to that "
        "point is kept"
    )
    writer.close()


def test_a_run_that_ends_while_it_is_read_is_not_one_that_lost_its_supervisor(
    writer: RecordWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.set_state(status="running", supervisor_pid=os.getpid(), supervisor_started=1.0)

    def end(state: states.RunState) -> bool:
        writer.set_state(status="completed")
        return False

    monkeypatch.setattr(supervisor_check, "is_supervised", end)
    assert Record(writer.dir).status == "completed"
    writer.close()


def test_a_run_without_its_supervisor_lasted_until_its_last_write(writer: RecordWriter) -> None:
    started = time.time() - 1000
    gone = {"supervisor_pid": os.getpid(), "supervisor_started": started}
    writer.set_state(status="running", started=started, **gone)
    for each in writer.dir.iterdir():
        os.utime(each, (started + 90, started + 90))
    record = Record(writer.dir)
    assert record.status == "failed"
    assert record.summary()["duration_s"] == pytest.approx(90, abs=0.01)


def test_a_run_that_could_not_write_its_end_names_the_file_system(
    writer: RecordWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.set_state(status="running", supervisor_pid=2**30, supervisor_started=1.0)
    record = Record(writer.dir)
    assert "read-only" not in record.state.reason
    open_file = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_WRONLY:
            raise OSError(errno.EROFS, "Read-only file system")
        return open_file(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    assert "the file system of the run's folder is read-only" in record.state.reason
    monkeypatch.undo()
    writer.close()


def test_a_state_that_is_being_written_in_place_is_read_once_it_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (folder / "run.json").read_bytes()
    (folder / "run.json").write_bytes(whole[:-5] + bytes(5))
    monkeypatch.setattr(time, "sleep", lambda _: (folder / "run.json").write_bytes(whole))
    assert Record(folder).state.status == "starting"


def test_a_live_run_whose_supervisor_is_hidden_in_a_container_is_live(writer: RecordWriter) -> None:
    writer.set_state(status="running", supervisor_pid=2**30, supervisor_started=1.0)
    record = Record(writer.dir)
    supervisor = os.open(writer.dir, os.O_RDONLY)
    try:
        fcntl.flock(supervisor, fcntl.LOCK_EX)
        assert record.status == "running"
        assert "cannot be seen from here" in record.state.reason
        with pytest.raises(DistrainError, match="is running; stop it before"):
            remove(record)
    finally:
        os.close(supervisor)
    assert record.status == "failed"


def test_a_live_run_whose_supervisor_is_suspended_says_so(writer: RecordWriter) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(child.pid).create_time()
    writer.set_state(status="running", supervisor_pid=child.pid, supervisor_started=started)
    child.send_signal(signal.SIGSTOP)
    while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    suspended = Record(writer.dir).state
    assert (suspended.status, suspended.reason) == (
        "running",
        supervisor_check.SUSPENDED.format(child.pid),
    )
    child.send_signal(signal.SIGCONT)
    while psutil.Process(child.pid).status() == psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert Record(writer.dir).state.reason == ""
    child.communicate()
    writer.close()


def test_another_process_with_the_same_pid_is_not_the_supervisor(writer: RecordWriter) -> None:
    identity = own_identity()
    identity["supervisor_started"] -= 5
    writer.set_state(status="running", **identity)
    assert Record(writer.dir).status == "failed"
    writer.set_state(host="elsewhere")  # where processes are not visible
    assert Record(writer.dir).status == "running"
    writer.close()


@pytest.mark.parametrize(
    ("status", "age_s", "found"),
    [("running", 60, "running"), ("running", 600, "failed"), ("queued", 600, "queued")],
)
def test_a_run_of_another_host_that_is_not_written_any_more_has_failed(
    status: states.Status, age_s: float, found: str, writer: RecordWriter
) -> None:
    writer.set_state(status=status, host="elsewhere", supervisor_pid=1, supervisor_started=1.0)
    for each in writer.dir.iterdir():
        os.utime(each, (time.time() - age_s, time.time() - age_s))
    record = Record(writer.dir)
    assert record.status == found
    assert ("elsewhere" in record.state.reason) == (found == "failed")
    supervisor = os.open(writer.dir, os.O_RDONLY)
    fcntl.flock(supervisor, fcntl.LOCK_EX)  # of a container on this host
    assert record.status == status
    os.close(supervisor)
    writer.close()


def test_a_run_without_a_supervisor_fails_after_a_minute(folder: Path) -> None:
    state = states.read_state(folder)
    late = msgspec.structs.replace(state, created=time.time() - 61)
    states.write_state(folder, late)
    assert Record(folder).state.reason == supervisor_check.NEVER_STARTED


# --- measurements ------------------------------------------------------------------------------


def test_every_event_can_be_read_back(writer: RecordWriter) -> None:
    said: list[Event] = [
        Hello(rank=0, pid=11, host="a", device="cpu:0"),
        facts(),
        Notice(time=2.0, text="mind"),
        Evaluation(time=3.0, epoch=1, step=9, samples=2, seconds=1.0, metrics={}),
    ]
    for event in said:
        writer.add(event)
    writer.commit()
    with Record(writer.dir) as record:
        assert [event for _, event in record.events()] == said
        assert [number for number, _ in record.events()] == [1, 2, 3, 4]
        assert [event for _, event in record.events(after_id=2, limit=1)] == said[2:3]
        assert [event for _, event in record.events(kinds=["hello", "notice"])] == said[0:3:2]
        assert list(record.events(kinds=[])) == []
        assert record.evaluations() == said[3:]
    writer.close()


def test_many_events_are_read_completely_and_in_order(writer: RecordWriter) -> None:
    for number in range(2500):
        writer.add(Notice(time=float(number), text=str(number)))
    writer.close()
    with Record(writer.dir) as record:
        assert [number for number, _ in record.events()] == list(range(1, 2501))
        assert [number for number, _ in record.events(limit=1500)] == list(range(1, 1501))


def test_ranks_have_their_step_and_phase(writer: RecordWriter) -> None:
    for rank in range(3):
        writer.add(Hello(rank=rank, pid=100 + rank, local_rank=rank, device=f"cpu:{rank}"))
        writer.add(Phase(time=1.0, rank=rank, phase="training"))
        writer.add(make_window(rank, 25 + rank))
    writer.add(Finished(time=2.0, rank=0, step=30))
    writer.add(Exited(time=2.0, rank=1, pid=101, code=-9))
    writer.add(Failure(time=2.0, rank=2, error="ValueError", message="no"))
    writer.add(Hello(role="viewer"))
    writer.commit()
    with Record(writer.dir) as record:
        zero, one, two = record.ranks()
        assert (zero.pid, zero.device, zero.step, zero.finished) == (100, "cpu:0", 30, True)
        assert (one.step, one.epoch, one.code, one.phase) == (26, 2, -9, "training")
        assert two.phase == "failed"
        assert min(zero.last_seen, one.last_seen, two.last_seen) > time.time() - 60
        assert record.latest()[1] == make_window(1, 26)
    writer.close()


def test_all_series_are_kept_apart(writer: RecordWriter) -> None:
    gpu = GpuSample(time=1.0, gpu=0, uuid="GPU-1", name="H", power=300.0, processes={5: 6})
    host = HostSample(time=1.0, cpu=5.0, memory_used=1.0, memory_total=2.0, load=0.1)
    rank = RankSample(time=1.0, rank=1, cpu=99.0, rss=5.0, processes=2)
    for sample in (gpu, host, rank):
        writer.add(sample)
    writer.commit()
    with Record(writer.dir) as record:
        assert record.latest(GPU) == {0: gpu}
        assert record.latest(HOST) == {0: host}
        assert record.latest(PROCS) == {1: rank}
        assert list(record.curves(GPU, columns=["power"])[0]["power"]) == [300.0]
        assert record.keys(STEPS) == []
    writer.close()


def test_the_curve_of_the_run_adds_up_its_ranks(writer: RecordWriter) -> None:
    for step in range(1, 101):
        for rank in range(4):
            writer.add(make_window(rank, step, loss_sum=4.0 * rank, warmup=step <= 10))
    writer.close()
    with Record(writer.dir) as record:
        run = record.overall()
        assert list(run["loss"]) == [1.5] * 100
        assert list(run["samples_per_s"])[10:] == [32.0] * 90
        assert record.curve(STEPS, 2, columns=RANK_COLUMNS)["step"][-1] == 100
        zoomed = record.overall(start=20, end=30)
        assert list(zoomed["step"]) == [float(step) for step in range(20, 31)]


def test_a_rank_whose_limit_is_not_known_is_left_out(writer: RecordWriter) -> None:
    """A viewer reads the last windows, then the curves; a rank may have its first in between."""
    for rank in (0, 1):
        writer.add(make_window(rank, 1))
    writer.close()
    with Record(writer.dir) as record:
        assert [*record.curves(STEPS, axis="time", start={1: 0.0})] == [1]


def test_what_a_script_declares_is_printable(writer: RecordWriter) -> None:
    for config in ({"a\x1b[2J": "b\x1b"}, {"more": 1}):
        writer.add(ScriptSettings(time=0.0, rank=0, config=config))
    metrics = {"lo\x1b[2Jss\n": Metric.of(1.0, 2)}
    writer.add(Evaluation(time=0.0, epoch=0, step=1, samples=2, seconds=0.0, metrics=metrics))
    writer.close()
    with Record(writer.dir) as record:
        assert record.script_settings().config == {"a·[2J": "b·", "more": 1}
        assert record.summary()["eval"] == {"lo·[2Jss": 0.5, "samples": 2}
        (evaluation,) = record.evaluations()
        assert [*evaluation.metrics] == ["lo·[2Jss"]


def test_a_finished_record_is_one_plain_file(writer: RecordWriter) -> None:
    writer.add(make_window(0, 1))
    writer.close()
    names = {path.name for path in writer.dir.glob("metrics.db*")}
    assert names == {"metrics.db"}
    header = (writer.dir / "metrics.db").read_bytes()[18:20]
    assert header == b"\x01\x01"  # not WAL: readable on a read-only disk


def test_a_record_is_written_once(writer: RecordWriter) -> None:
    writer.close()
    with pytest.raises(RunsFolderError, match="a resumed run is a new record"):
        RecordWriter(writer.dir)


def test_a_full_disk_loses_nothing_once_there_is_room(disk: Disk, writer: RecordWriter) -> None:
    for step in range(1, 12):
        writer.add(make_window(0, step))
    writer.commit()
    disk.fill()
    for step in range(12, 3000):
        writer.add(make_window(0, step))
    with pytest.raises(RunsFolderError, match="disk is full"):
        writer.commit()
    with Record(writer.dir) as record:
        assert record.totals()[0]["steps"] == 11
    disk.free()
    writer.add(make_window(0, 3000))
    writer.commit()
    with Record(writer.dir) as record:
        assert record.totals()[0]["steps"] == 3000
        assert sum(record.curve(STEPS, 0, points=10)["samples"]) == 12000
    writer.close()


# --- many readers, and a killed writer ------------------------------------------------------------


def test_readers_see_complete_commits_while_the_writer_writes(writer: RecordWriter) -> None:
    stop = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        with Record(writer.dir) as record:
            last = 0
            while not stop.is_set():
                totals = record.totals()
                steps = [total["steps"] for total in totals.values()]
                curves = [int(sum(c["steps"])) for c in record.curves(points=20).values()]
                if any(count % 5 for count in steps) or sum(steps) < last:
                    wrong.append((last, steps))
                if any(now < then for then, now in zip(steps, curves, strict=False)):
                    wrong.append((steps, curves))
                last = sum(steps)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for first in range(1, 1000, 5):
        for step in range(first, first + 5):
            for rank in range(2):
                writer.add(make_window(rank, step))
        writer.commit()
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    writer.close()


def test_a_record_is_closed_once_another_thread_has_read_it(writer: RecordWriter) -> None:
    # Where SQLite is closed during a query, the process may end by a signal.
    writer.add(make_window(0, 1))
    writer.close()
    with Record(writer.dir) as record:
        closing = threading.Thread(target=record.close)
        with record.one_moment():
            closing.start()
            closing.join(timeout=0.1)
            assert record.keys() == [0]
        closing.join()
        assert record.keys() == [0]


def test_rows_are_read_to_their_end_where_the_record_is_closed_meanwhile(
    writer: RecordWriter,
) -> None:
    windows = [make_window(0, step) for step in range(1, 6)]
    for window in windows:
        writer.add(window)
    writer.close()
    with Record(writer.dir) as record:
        rows = record.samples(STEPS, 0, chunk=2)
        first = next(rows)
        record.close()
        assert [first, *rows] == windows


WRITE_FOREVER = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.support.full_disk import Disk
from tests.support.records import make_window
from distrain.runners.protocol.events import Notice
from distrain.runners.records.writer import RecordWriter
writer = RecordWriter(Path(sys.argv[1]))
for step in itertools.count(1):
    for rank in range(3):
        writer.add(make_window(rank, step))
    if step % 7 == 0:
        writer.add(Notice(time=1.0, text=str(step)))
        writer.commit()
        print(step, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.33])
def test_a_killed_writer_leaves_every_commit_complete(folder: Path, delay: float) -> None:
    script = WRITE_FOREVER.format(tests=str(ROOT))
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        promised = max(int(line) for line in ["7", *process.stdout.read().split()])
    with Record(folder) as record:
        for total in record.totals().values():
            assert total["steps"] == total["step"]
            assert total["steps"] >= promised
            assert total["steps"] % 7 == 0
        for curve in record.curves(points=16).values():
            assert len(curve) <= 16
            assert sum(curve["steps"]) == curve["step"][-1] >= promised
        *_, (_, last) = record.events()
        assert last == Notice(time=1.0, text=str(int(curve["step"][-1])))


def holds_without_root(action: Callable[[], bool]) -> bool:
    """Return whether `action` holds in a process without the rights of root."""
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            os._exit(0 if action() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("ended", [True, False])
def test_a_record_can_be_read_in_a_read_only_folder(writer: RecordWriter, ended: bool) -> None:
    writer.add(make_window(0, 1))
    writer.commit()
    reader = None if ended else Record(writer.dir)
    if reader is not None:
        reader.latest()  # keeps the writer from leaving WAL mode
    writer.close()
    with tempfile.TemporaryDirectory() as name:
        # Not in tmp_path, which only its owner may enter.
        copy = Path(name) / "copy"
        shutil.copytree(writer.dir, copy, ignore=shutil.ignore_patterns("*-shm", "*-wal"))
        os.chmod(name, 0o755)
        os.chmod(copy, 0o555)
        assert holds_without_root(lambda: Record(copy).latest() == {0: make_window(0, 1)})
        os.chmod(copy, 0o755)
    if reader is not None:
        reader.close()


# --- summaries and lists of records -----------------------------------------------------------


def test_epochs_count_from_where_a_resumed_run_began(writer: RecordWriter) -> None:
    # 3 epochs of 5 steps and 2 more were done before; with 10 steps each, 6 are left of this one.
    writer.set_state(facts=facts(start_step=17, start_epoch=3, start_epoch_steps=6))
    reader = Record(writer.dir)
    assert reader.summary()["epochs"] == 3
    for step, epochs in ((22, 3), (23, 4), (32, 4), (33, 5)):
        writer.add(make_window(0, step))
        writer.commit()
        assert reader.summary()["epochs"] == epochs
    reader.close()


def test_the_summary_counts_real_samples_without_warm_up(writer: RecordWriter) -> None:
    writer.set_state(facts=facts(start_step=0), started=100.0, ended=112.0, status="completed")
    for step in range(1, 26):
        writer.add(
            make_window(0, step, samples=6, warmup=step <= 5, seconds=9.0 if step < 6 else 0.5)
        )
        writer.add(
            make_window(1, step, samples=2, warmup=step <= 5, seconds=9.0 if step < 6 else 0.5)
        )
    for top1 in (1.0, 19.0):
        metrics = {"loss": Metric(5.0, 20), "top1": Metric(top1, 20), "top5": Metric(20.0, 20)}
        writer.add(Evaluation(time=9.0, epoch=1, step=20, samples=20, seconds=1.0, metrics=metrics))
    writer.close()
    assert Record(writer.dir).summary() == {
        "run_id": writer.dir.name,
        "dir": str(writer.dir),
        "status": "completed",
        "strategy": "ddp",
        "launcher": "torchrun",
        "precision": "fp32",
        "world_size": 2,
        "nodes": 1,
        "devices": ["cpu:0", "cpu:1"],
        "epochs": 2,
        "steps": 25,
        "samples": 200,
        "samples_per_s": 6 / 0.5 + 2 / 0.5,
        "duration_s": 12.0,
        "attempts": 0,
        "steps_again": 0,
        "eval": {"loss": 0.25, "top1": 0.95, "top5": 1.0, "samples": 20},
    }


@pytest.mark.parametrize("is_on_other_hosts", [False, True])
def test_the_summary_of_a_language_model_has_its_tokens_and_mfu(
    writer: RecordWriter, is_on_other_hosts: bool
) -> None:
    gpus = [
        Device(kind="cuda", index=index, uuid=f"GPU-{index}", name="NVIDIA A100-SXM4-40GB")
        for index in range(1 if is_on_other_hosts else 2)
    ]
    plan = msgspec.structs.replace(
        cast(Plan, Record(writer.dir).state.plan),
        devices=gpus,
        precision="bf16",
        tasks=is_on_other_hosts,
    )
    known = facts(item="token", items_per_sample=64.0, flops_per_sample=1e12)
    writer.set_state(facts=known, plan=plan)
    for rank in (0, 1):
        writer.add(make_window(rank, 1, samples=50, seconds=1.0))
    writer.commit()
    summary = Record(writer.dir).summary()
    assert (summary["item"], summary["items_per_s"]) == ("token", 6400.0)
    assert summary["mfu"] == pytest.approx(100e12 / (2 * 312e12))
    assert mean_throughput(summary) == "6,400 tokens/s (mean)"
    assert Follower(Record(writer.dir)).snapshot().throughput == "6,400 tokens/s"


def test_the_summary_of_a_failure_names_rank_and_error(writer: RecordWriter) -> None:
    error = RunError(rank=1, type="ValueError", message="no", traceback="…", secondary=[0])
    writer.set_state(status="failed", error=error)
    writer.close()
    summary = Record(writer.dir).summary()
    assert summary["error"] == {"rank": 1, "type": "ValueError", "message": "no"}
    assert (summary["eval"], summary["samples_per_s"], summary["duration_s"]) == (None, None, None)


def test_a_stored_summary_is_read_without_opening_the_database(writer: RecordWriter) -> None:
    writer.close()
    record = Record(writer.dir)
    writer.set_state(status="completed")
    writer.set_state(summary=record.summary())
    (writer.dir / "metrics.db").unlink()
    assert record.summary()["status"] == "completed"


def test_records_are_listed_oldest_first_and_broken_ones_are_reported(tmp_path: Path) -> None:
    folders = [create_run(tmp_path, CONFIG, word=word) for word in ("c", "b", "a")]
    (folders[1] / "run.json").write_text("{")
    (tmp_path / "not-a-run").mkdir()
    broken: list[DistrainError] = []
    assert [r.dir for r in list_records(tmp_path, broken.append)] == [folders[0], folders[2]]
    assert [str(error).split(" is ")[0] for error in broken] == [str(folders[1])]
    assert list_records(tmp_path / "nothing") == []
    with pytest.raises(RunsFolderError, match="cannot read"):
        list_records(folders[0] / "run.json")


def test_a_removed_run_can_be_restored_and_a_live_one_cannot_be_removed(tmp_path: Path) -> None:
    folder = create_run(tmp_path, CONFIG, word="ddp")
    with pytest.raises(DistrainError, match="is starting; stop it before"):
        remove(Record(folder))
    writer = RecordWriter(folder)
    writer.set_state(status="stopped")
    writer.close()
    assert remove(Record(folder)) == tmp_path / ".trash" / folder.name
    assert list_records(tmp_path) == []
    assert restore(find_in_trash(tmp_path, folder.name).dir).name == folder.name
    assert [record.id for record in list_records(tmp_path)] == [folder.name]
    with pytest.raises(DistrainError, match="in the trash"):
        find_in_trash(tmp_path, folder.name)
    with pytest.raises(DistrainError, match="in the trash"):
        find_in_trash(tmp_path, "")


def test_a_run_from_which_a_live_one_continues_is_needed_until_that_has_a_checkpoint(
    tmp_path: Path,
) -> None:
    folder = create_run(tmp_path, CONFIG, word="ddp")
    writer = RecordWriter(folder)
    writer.set_state(status="stopped")
    writer.close()
    load = str(folder / "checkpoints" / "step-00000001.pt")
    child = create_run(tmp_path, CONFIG.with_changes({"checkpoint.load": load}), word="child")
    with pytest.raises(DistrainError, match=rf"from which {child.name} \(starting\) continues"):
        require_unused([Record(folder)])
    (child / "checkpoints").mkdir(exist_ok=True)
    (child / "checkpoints" / "step-00000002.pt").touch()
    require_unused([Record(folder)])


def test_a_path_that_sqlite_cannot_open_is_reported_with_its_limit(tmp_path: Path) -> None:
    runs_dir = tmp_path / ("long" * 50) / ("long" * 50) / ("long" * 50)
    folder = create_run(runs_dir, CONFIG, word="ddp")
    with pytest.raises(RunsFolderError, match="whose path has more than 512 bytes"):
        RecordWriter(folder)


def test_reading_records_loads_neither_torch_nor_psutil_nor_the_app() -> None:
    heavy = "{'torch', 'psutil', 'textual', 'rich', 'numpy'}"
    code = f"import sys, distrain.runners.records.reader; print(*{heavy} & {{*sys.modules}})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == ""


@pytest.mark.parametrize("body", ['{"type": "unheard of"}', b"\xff", 1])
def test_an_event_of_another_version_is_one_sentence(writer: RecordWriter, body: object) -> None:
    writer.add(Notice(time=1.0, text="hello"))
    writer.commit()
    with sqlite3.connect(writer.dir / "metrics.db") as db:
        db.execute("UPDATE events SET body = ?", (body,))
    db.close()
    with Record(writer.dir) as record, pytest.raises(DistrainError, match="event 1 cannot be read"):
        list(record.events())


def test_a_state_with_invalid_numbers_can_be_read(writer: RecordWriter) -> None:
    writer.set_state(status="running", supervisor_pid=-5, summary={})
    with Record(writer.dir) as record:
        assert record.status == "failed"
        assert record.summary()["run_id"] == record.id


def test_every_figure_of_a_script_has_a_source_or_a_reason(tmp_path: Path) -> None:
    program = RunBuilder(tmp_path, script={"path": "./train.sh"}).end().record
    sources = program.summary()["sources"]
    assert sources["steps"] == sources["values"]
    assert sources["steps"].startswith("the program is not a Python script, and")
    assert sources["eval"] == "distrain.log_eval() was not called"
    assert sources["memory"] == "no sample of the ranks' processes was taken"
    script = RunBuilder(tmp_path, script={"path": "train.py"})
    script.writer.add(RankSample(time=script.now, rank=0, cpu=50.0, rss=1, processes=1))
    sources = script.logged(loss=1.0).evaluation(top1=0.5).end().record.summary()["sources"]
    assert sources["steps"] == "not reported by the script"
    assert sources["values"] == "logged by the script"
    assert sources["eval"] == "distrain.log_eval(), not checked"
    assert sources["memory"].startswith("sampled by distrain")


def test_the_cache_of_a_writer_grows_with_its_ranks_and_not_with_time(tmp_path: Path) -> None:
    with_ranks = {}
    for ranks in (2, 400, 5000):
        folder = create_run(tmp_path, CONFIG, word=f"ranks-{ranks}")
        writer = RecordWriter(folder)
        for rank in range(ranks):
            writer.add(Hello(rank=rank, world_size=ranks))
        writer.commit()
        writer.add(make_window(0, 1))
        writer.commit()
        [(with_ranks[ranks],)] = writer._db.execute("PRAGMA cache_size").fetchall()
        writer.close()
    assert with_ranks == {2: -2000, 400: -6400, 5000: -16_000}


def test_the_last_commit_waits_for_the_lock_of_another_program(
    folder: Path, writer: RecordWriter
) -> None:
    writer.add(make_window(0, 1))
    writer._db.execute("PRAGMA busy_timeout = 0")  # so that a commit before the last does not
    with closing(sqlite3.connect(folder / DATABASE, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RunsFolderError):
            writer.commit()
        timer = threading.Timer(0.5, other.rollback)
        timer.start()
        writer.close()
        timer.join()
    assert Record(folder).totals()[0]["steps"] == 1
