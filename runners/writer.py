"""RecordWriter: the one writer of a record, in the supervisor. Cheap to feed, safe to kill."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from runners.appender import Appender
from runners.errors import DistrainError, RunsFolderError
from runners.events import (
    Attempt,
    Event,
    Exited,
    Failure,
    Finished,
    GpuSample,
    Hello,
    HostSample,
    Phase,
    RankSample,
    Window,
    encode,
)
from runners.series import SERIES
from runners.state import RunState, Status, read_state, write_state

Item = Event | GpuSample | HostSample | RankSample


class RankInfo(msgspec.Struct, kw_only=True):
    """What is known of a rank now.

    `code` is the exit code of its process (negative: a signal). The table `ranks` changes with
    events only; the reader brings `step`, `epoch` and `last_seen` up to the last window.
    """

    rank: int
    local_rank: int = 0
    pid: int = 0
    host: str = ""
    device: str = ""
    device_uuid: str = ""
    step: int = 0
    epoch: int = 0
    phase: str = "starting"
    finished: bool = False
    code: int | None = None
    last_seen: float = 0.0


UNDONE = "undone"  # the kind of an event that was taken back; its body is as it was
_OF_A_STEP = ("evaluation", "saved", "nonfinite")  # kinds that are taken back with their step
_RANK_COLUMNS = RankInfo.__struct_fields__
_SCHEMA = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY, time REAL, kind TEXT, rank INTEGER, "
    "step INTEGER, body TEXT)",
    "CREATE INDEX events_kind ON events (kind)",
    f"CREATE TABLE ranks ({', '.join(_RANK_COLUMNS)}, PRIMARY KEY (rank)) WITHOUT ROWID",
)


class RecordWriter:
    """Takes what is heard and measured, and writes it in batches.

    One thread may `add` while another is in `commit`. What is not committed is lost with the
    process. Raises RunsFolderError where the disk refuses; the batch is kept for the next try.

    An Attempt takes back what was added before it and is later than its step; do not add what a
    rank of an older attempt says after that. Windows are deleted, and roll-ups that stand for any
    of them. Of a window across the step (none is: they end where checkpoints begin) the steps
    before it are lost too, for sums cannot be parted. Evaluations, checkpoints and losses that
    were not finite stay as events of kind UNDONE. Samples are of times, and stay.

    Where its job keeps a journal beside it (`beside`), a record whose writer was killed is taken
    up where its last commit left it. `merged` is how many of the journal's entries it has: set it,
    in the thread that commits, once all of such an entry is added.
    """

    def __init__(self, folder: Path, beside: bool = False) -> None:
        self.dir = Path(folder)
        self.state: RunState = read_state(self.dir)
        self.ranks: dict[int, RankInfo] = {}
        self._pending: list[Item] = []
        self._series = {series.kind: Appender(series) for series in SERIES}
        self._there: set[tuple[str, int]] = set()
        path = self.dir / "metrics.db"
        self.taken_up = beside and path.exists()
        try:
            if not self.taken_up:
                _create(path)
            self._db = _open(path)
            self.merged: int = self._db.execute("PRAGMA user_version").fetchone()[0]
            if self.taken_up:
                self._take_up()
        except (sqlite3.Error, OSError) as error:
            raise self._refused(error) from None

    def _take_up(self) -> None:
        # What follows from the journal is told anew; a stop that was asked for is still wanted.
        status: Status = "stopping" if self.state.status == "stopping" else "running"
        self.state = msgspec.structs.replace(self.state, status=status, **_BEGINNING)
        columns = ", ".join(_RANK_COLUMNS)
        for row in self._db.execute(f"SELECT {columns} FROM ranks").fetchall():
            known = dict(zip(_RANK_COLUMNS, row, strict=True))
            self.ranks[known["rank"]] = msgspec.convert(known, RankInfo, strict=False)
        last = "SELECT step FROM events WHERE kind = 'attempt' ORDER BY id DESC LIMIT 1"
        for (step,) in self._db.execute(last).fetchall():
            self._there = self._known_of(step)
        for appender in self._series.values():
            appender.recount(self._db)

    def add(self, item: Item) -> None:
        """Keep an event or a sample for the next commit."""
        self._pending.append(item)

    @property
    def waiting(self) -> int:
        """How many rows the next commit will write."""
        return len(self._pending)

    def forget(self) -> None:
        """Drop what was added since the last commit: the record has it."""
        self._pending.clear()

    def commit(self) -> None:
        """Write all that was added, in one transaction."""
        batch, merged = self._pending[:], self.merged
        if not batch:
            return
        now = time.time()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._write(batch, now)
            self._db.execute(f"PRAGMA user_version = {merged}")
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:  # a full disk has rolled back already
                self._db.execute("ROLLBACK")
            for appender in self._series.values():
                appender.recount(self._db)
            raise self._refused(error) from None
        del self._pending[: len(batch)]

    def set_state(self, **changes: Any) -> RunState:
        """Change fields of run.json, atomically."""
        self.state = msgspec.structs.replace(self.state, **changes)
        try:
            write_state(self.dir, self.state)
        except OSError as error:
            raise self._refused(error) from None
        return self.state

    def close(self) -> None:
        """Commit the rest and leave one plain file, which needs no -wal beside it to be read."""
        try:
            self.commit()
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # Refused while somebody reads; then the file stays in WAL mode, which is fine too.
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA journal_mode = DELETE")
        finally:
            self._db.close()

    def _write(self, batch: list[Item], now: float) -> None:
        part: list[Item] = []
        for item in batch:
            if isinstance(item, Attempt):
                self._insert(part, now)
                self._take_back(item)
                part = []
            part.append(item)
        self._insert(part, now)

    def _take_back(self, attempt: Attempt) -> None:
        self._series[Window].take_back(self._db, "step", attempt.step)
        kinds = ", ".join("?" * len(_OF_A_STEP))
        self._db.execute(
            f"UPDATE events SET kind = ? WHERE kind IN ({kinds}) AND step > ?",
            (UNDONE, *_OF_A_STEP, attempt.step),
        )
        self._there = self._known_of(attempt.step)

    def _known_of(self, step: int) -> set[tuple[str, int]]:
        """What is not to be said once more of a step that ranks go on after."""
        kinds = ", ".join("?" * len(_OF_A_STEP))
        there = f"SELECT DISTINCT kind, step FROM events WHERE kind IN ({kinds}) AND step = ?"
        return set(self._db.execute(there, (*_OF_A_STEP, step)))

    def _insert(self, batch: list[Item], now: float) -> None:
        by_kind: dict[type, list[Any]] = {kind: [] for kind in self._series}
        said: list[Event] = []
        for item in batch:
            by_kind.get(type(item), said).append(item)
        # A run that was complete evaluates and saves its last step anew: it counts once.
        said = [event for event in said if (_kind(event), _step(event)) not in self._there]
        for kind, items in by_kind.items():
            if items:
                self._series[kind].append(self._db, items)
        self._db.executemany(
            "INSERT INTO events (time, kind, rank, step, body) VALUES (?, ?, ?, ?, ?)",
            [_event_row(event, now) for event in said],
        )
        marks = ", ".join("?" * len(_RANK_COLUMNS))
        self._db.executemany(
            f"INSERT OR REPLACE INTO ranks VALUES ({marks})",
            [msgspec.structs.astuple(self.ranks[rank]) for rank in self._heard(said, now)],
        )

    def _heard(self, said: list[Event], now: float) -> set[int]:
        """Bring `ranks` up to date; gives those that changed."""
        changed: set[int] = set()

        def info(rank: int) -> RankInfo:
            changed.add(rank)
            known = self.ranks.setdefault(rank, RankInfo(rank=rank))
            known.last_seen = now
            return known

        for event in said:
            match event:
                case Attempt():
                    changed |= self.ranks.keys()
                    self._reset_ranks(event, now)
                case Hello(role="rank"):
                    known = info(event.rank)
                    for name in _SAID_AT_HELLO:
                        setattr(known, name, getattr(event, name))
                case Phase():
                    known = info(event.rank)
                    known.phase, known.step = event.phase, max(known.step, event.step)
                case Failure():
                    info(event.rank).phase = "failed"
                case Finished():
                    known = info(event.rank)
                    known.phase, known.finished, known.step = "finished", True, event.step
                case Exited():
                    info(event.rank).code = event.code
        return changed

    def _reset_ranks(self, attempt: Attempt, now: float) -> None:
        for rank, known in self.ranks.items():
            place = {name: getattr(known, name) for name in _SAID_AT_HELLO}
            fresh = RankInfo(rank=rank, step=attempt.step, last_seen=now, **place)
            self.ranks[rank] = msgspec.structs.replace(fresh, pid=0)

    def _refused(self, error: Exception) -> RunsFolderError:
        return RunsFolderError(f"the record {self.dir} cannot be written: {error}")


@contextmanager
def disk_may_be_full() -> Iterator[None]:
    """Around writing that keeps what the disk refuses for the next try: for now it is only told."""
    try:
        yield
    except DistrainError as error:
        with suppress(OSError):  # the log lies on the same disk
            print(error, file=sys.stderr, flush=True)


_BEGINNING: dict[str, Any] = {
    "attempts": 0,
    "ended": None,
    "error": None,
    "reason": "",
    "summary": None,
}
_SAID_AT_HELLO = ("local_rank", "pid", "host", "device", "device_uuid")


def _create(path: Path) -> None:
    """A new database, under its name only once its tables are there."""
    if path.exists():
        raise FileExistsError("it has been written already; a resumed run is a new record")
    draft = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        draft.unlink()
    db = sqlite3.connect(draft, isolation_level=None)
    # Waits for the disk once, at the end, not at each table.
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA journal_mode = WAL")
    for statement in (*_SCHEMA, *(s for series in SERIES for s in series.schema())):
        db.execute(statement)
    db.close()
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(draft, path)


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    # A thousand ranks append at a thousand places: keep those pages, in KiB.
    db.execute("PRAGMA cache_size = -16000")
    return db


def _kind(event: Event) -> Any:
    return event.__struct_config__.tag


def _step(event: Event) -> Any:
    return getattr(event, "step", None)


def _event_row(event: Event, now: float) -> tuple[Any, ...]:
    return (
        getattr(event, "time", now),
        _kind(event),
        getattr(event, "rank", None),
        _step(event),
        encode(event)[:-1].decode(),
    )
