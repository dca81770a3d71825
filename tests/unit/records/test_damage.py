"""Files of a live run that somebody else deletes or overwrites are written again."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import RunsFolderError
from distrain.runners.protocol.events import Notice
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision import record_guard
from distrain.runners.supervision.record_guard import RecordGuard
from distrain.runners.system import files
from tests.support.records import make_window

STEPS = 2000
Damage = Callable[[Path], object]


@pytest.fixture
def writer(tmp_path: Path) -> RecordWriter:
    writer = RecordWriter(create_run(tmp_path, RunConfig(), word="ddp"))
    writer.set_state(status="running")
    for step in range(1, STEPS + 1):
        writer.add(make_window(step=step))
    writer.add(Notice(time=1.0, text="before", level="info"))
    writer.commit()
    return writer


def delete(*names: str) -> Damage:
    return lambda folder: [(folder / name).unlink() for name in names]


def overwrite(name: str, data: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(data)


def replace_database(folder: Path) -> None:
    shutil.copy(folder / "metrics.db", folder / "other")
    (folder / "other").rename(folder / "metrics.db")


def overwrite_database(writer: RecordWriter) -> None:
    """Overwrite all but the first page, as only SQLite finds."""
    writer._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = writer.dir / "metrics.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    writer._db.execute("PRAGMA shrink_memory")


@pytest.mark.parametrize(
    "damage",
    [
        delete("metrics.db"),
        delete("metrics.db-wal"),
        delete("metrics.db", "metrics.db-wal", "metrics.db-shm"),
        replace_database,
    ],
)
def test_nothing_is_lost_of_a_deleted_database(writer: RecordWriter, damage: Damage) -> None:
    reader = Record(writer.dir)
    assert reader.totals()[0]["steps"] == STEPS
    damage(writer.dir)
    said = writer.restore_database()
    assert said.endswith("by somebody else and was written again; nothing is missing")
    assert writer.restore_database() == ""
    writer.add(make_window(step=STEPS + 1))
    writer.commit()
    for record in (reader, Record(writer.dir)):  # a reader that was open finds the new file too
        assert record.totals()[0]["steps"] == STEPS + 1
        assert [info.step for info in record.ranks()] == [STEPS + 1]
        assert [event.text for _, event in record.events(kinds=("notice",))] == ["before"]
        record.close()
    writer.close()
    assert [path.name for path in writer.dir.glob("*metrics*")] == ["metrics.db"]
    (writer.dir / "metrics.db").rename(writer.dir / "kept")
    assert writer.restore_database() == ""  # by a thread that comes too late: nothing can be read
    assert not (writer.dir / "metrics.db").exists()


def test_entries_of_a_journal_count_once_they_are_written(writer: RecordWriter) -> None:
    with writer.journal_entry(1):
        writer.add(make_window(step=STEPS + 1))  # added, but not committed yet
    delete("metrics.db")(writer.dir)
    assert writer.restore_database()
    ((entries,),) = writer._db.execute("PRAGMA user_version")
    assert entries == 0
    writer.commit()
    ((entries,),) = writer._db.execute("PRAGMA user_version")
    assert entries == 1
    writer.close()


def test_an_index_of_the_log_that_was_truncated_ends_nothing(writer: RecordWriter) -> None:
    path = writer.dir / "metrics.db-shm"
    for data in (b"", b"x", b"x" * path.stat().st_size):
        path.write_bytes(data)
        writer.add(make_window(step=STEPS + 1))
        writer.commit()
        path.write_bytes(data)
        assert writer.restore_database() == ""
    writer.close()
    assert Record(writer.dir).totals()[0]["steps"] == STEPS + 3


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"nonsense" * 100_000], ids=["empty", "short", "long"]
)
def test_an_overwritten_database_says_what_is_missing(writer: RecordWriter, data: bytes) -> None:
    overwrite("metrics.db", data)(writer.dir)
    said = writer.restore_database()
    assert said.startswith("metrics.db was overwritten by somebody else and was written again")
    writer.add(make_window(step=STEPS + 1))
    writer.commit()
    record = Record(writer.dir)
    assert record.totals()[0]["steps"] == (1 if "steps" in said else STEPS + 1)
    assert [info.step for info in record.ranks()] == [STEPS + 1]
    writer.close()


def test_viewers_miss_no_event_of_a_database_that_begins_empty(writer: RecordWriter) -> None:
    reader = Record(writer.dir)
    ((last, _),) = reader.events()
    reader.close()
    overwrite_database(writer)
    writer.add(Notice(time=2.0, text="after", level="info"))
    with pytest.raises(RunsFolderError):
        writer.commit()
    assert "is missing (events" in writer.restore_database()
    writer.commit()
    ((_, event),) = reader.events(after_id=last)
    assert isinstance(event, Notice)
    assert event.text == "after"
    writer.close()


def test_damage_that_only_sqlite_finds_is_mended(writer: RecordWriter) -> None:
    overwrite_database(writer)
    writer.add(make_window(step=STEPS + 1))
    with pytest.raises(Exception, match="malformed"):
        writer.commit()
    assert "is missing (events" in writer.restore_database()
    writer.commit()
    assert Record(writer.dir).totals()[0]["steps"] >= 1
    kept = list(writer.dir.glob("metrics.db.damaged-*"))
    assert len(kept) == 1
    writer.close()


def test_small_files_are_written_again_and_said_once(writer: RecordWriter) -> None:
    guard = RecordGuard(writer)
    assert guard.restore() == []
    before = {name: (writer.dir / name).read_bytes() for name in ("run.json", "config.toml")}
    (writer.dir / "run.json").unlink()
    (writer.dir / "config.toml").write_text("[train]\nepochs = 1\n")
    assert guard.restore() == [
        "run.json was deleted by somebody else and was written again",
        "config.toml was overwritten by somebody else and was written again",
    ]
    assert guard.restore() == []
    assert before == {name: (writer.dir / name).read_bytes() for name in before}
    writer.set_state(status="stopping")
    assert guard.restore() == []
    writer.close()


def test_a_state_that_was_written_on_a_full_disk_is_no_damage(
    writer: RecordWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no indentation, which somebody else seemed to have removed."""

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    guard = RecordGuard(writer)
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_atomically", full)
        writer.set_state(status="stopping")
    assert (writer.dir / "run.json").read_bytes().count(b"\n") == 1
    assert guard.restore_small_files() == []


def test_what_cannot_be_written_again_is_said_once(
    writer: RecordWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = RecordGuard(writer)
    (writer.dir / "run.json").unlink()

    def refuse(path: Path, _content: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(record_guard, "write_atomically", refuse)
    assert "cannot be restored: Read-only file system" in guard.restore()[0]
    assert guard.restore() == []
    writer.close()


@pytest.mark.parametrize(
    "name", ["run.json", "config.toml", "metrics.db", "metrics.db-wal", "metrics.db-shm"]
)
def test_a_folder_at_the_place_of_a_file_is_kept_and_nothing_is_lost(
    writer: RecordWriter, name: str
) -> None:
    guard = RecordGuard(writer)
    (writer.dir / name).unlink()
    (writer.dir / name).mkdir()
    (writer.dir / name / "theirs").touch()
    assert len(guard.restore()) == 1
    assert guard.restore() == []
    assert (writer.dir / f"{name}.damaged-1" / "theirs").exists()
    writer.close()
    assert Record(writer.dir).totals()[0]["steps"] == STEPS


def test_another_folder_at_the_same_path_is_left_alone(writer: RecordWriter) -> None:
    guard = RecordGuard(writer)
    writer.dir.rename(writer.dir.with_name("moved"))
    assert guard.restore() == []
    writer.dir.mkdir()
    assert guard.restore() == []
    assert list(writer.dir.iterdir()) == []


def test_a_database_that_was_moved_with_its_folder_is_finished_there(writer: RecordWriter) -> None:
    guard = RecordGuard(writer)
    writer.dir = writer.dir.rename(writer.dir.with_name(f"{writer.dir.name}-moved"))
    assert guard.restore() == []
    writer.close()
    assert [path.name for path in writer.dir.glob("*metrics*")] == ["metrics.db"]
    assert Record(writer.dir).totals()[0]["steps"] == STEPS
