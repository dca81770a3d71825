"""RecordWriter: the one writer of a record, used by the supervisor."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from distrain.runners.errors import RunsFolderError
from distrain.runners.protocol.events import (
    Attempt,
    Event,
    GpuSample,
    HostSample,
    Logged,
    RankSample,
    Window,
    encode,
)
from distrain.runners.records.database import (
    DATABASE,
    UNDONE,
    create_database,
    open_for_writing,
    set_cache,
)
from distrain.runners.records.open_files import MOVED, OpenFiles
from distrain.runners.records.ranks import RANK_FIELDS, RankInfo, update_ranks
from distrain.runners.records.salvage import salvage
from distrain.runners.records.state import (
    RunState,
    Status,
    read_state,
    write_state,
)
from distrain.runners.records.timeseries.appender import Appender
from distrain.runners.records.timeseries.rows import read_latest
from distrain.runners.records.timeseries.series import LOGGED, SERIES, LoggedRow
from distrain.runners.records.write_errors import cannot_write, is_damage

Item = Event | GpuSample | HostSample | RankSample

LAST_COMMIT_S = 60  # that the last commit waits for a lock of another program
_KINDS_OF_A_STEP = ("evaluation", "saved", "nonfinite")  # events that are undone with their step
_KIND_MARKS = ", ".join("?" * len(_KINDS_OF_A_STEP))
_INITIAL_STATE: dict[str, Any] = {
    "attempts": 0,
    "ended": None,
    "error": None,
    "reason": "",
    "summary": None,
}


class RecordWriter:
    """Collects events and samples, and writes them in batches.

    One thread may `add` while another is in `commit` or `restore_database`, which wait for each
    other. What is not committed is lost with the process. Methods raise RunsFolderError when the
    disk or SQLite refuses; the batch is kept for the next try.

    An Attempt discards what was added before it and belongs to later steps; do not add what a
    rank of an older attempt sends after that. Windows and logged values are deleted, with the
    roll-ups that cover any of them. Should a window lie across the step (none does: windows end
    where checkpoints begin), its earlier steps are lost too, as sums cannot be divided.
    Evaluations, checkpoints and losses that were not finite stay as events of kind UNDONE. Samples
    belong to times, not to steps, and stay. A curve that a script has logged is cut only where
    the new attempt goes on with it.

    A record with a journal, whose job writes it (`has_journal`), can be continued after its
    writer was killed: `recovered` is then true, and `journal_entries` is how many entries of the
    journal it contains.
    """

    def __init__(self, folder: Path, has_journal: bool = False) -> None:
        self.dir = Path(folder)
        self.state: RunState = read_state(self.dir)
        self.written_state = self.state  # as it is on the disk
        self.ranks: dict[int, RankInfo] = {}
        self._pending: list[Item] = []
        self._appenders = {series.kind: Appender(series) for series in SERIES}
        self._known_events: set[tuple[str, int]] = set()
        self._last_event = 0  # its id; those of a new database go on, as viewers read from an id on
        self._curves: dict[tuple[str, int], int] = {}  # by name and rank
        self._uncut: set[int] = set()  # curves that only earlier attempts of a script have logged
        self._is_damaged = False
        self._db_lock = threading.RLock()
        self._entry_lock = threading.Lock()  # held while only a part of an entry is added
        self._is_closed = False
        path = self.dir / DATABASE
        self.recovered = has_journal and path.exists()
        try:
            if not self.recovered:
                create_database(path)
            self._open()
            self.journal_entries: int = self._db.execute("PRAGMA user_version").fetchone()[0]
            self._journal_entries_written = self.journal_entries
            if self.recovered:
                self._recover()
        except (sqlite3.Error, OSError) as error:
            raise self._cannot_write(error) from None

    def _open(self) -> None:
        self._db = open_for_writing(self.dir / DATABASE)
        self._files = OpenFiles(self.dir / DATABASE)

    def _recover(self) -> None:
        # The journal is replayed, which sets the state again; only a requested stop is not in it.
        status: Status = "stopping" if self.state.status == "stopping" else "running"
        self.state = msgspec.structs.replace(self.state, status=status, **_INITIAL_STATE)
        for row in self._db.execute(f"SELECT {', '.join(RANK_FIELDS)} FROM ranks").fetchall():
            info = msgspec.convert(dict(zip(RANK_FIELDS, row, strict=True)), RankInfo, strict=False)
            self.ranks[info.rank] = info
        last = "SELECT body FROM events WHERE kind = 'attempt' ORDER BY id DESC LIMIT 1"
        for (body,) in self._db.execute(last).fetchall():
            attempt = msgspec.json.decode(body, type=Attempt)
            self._known_events = self._find_events_at(attempt.step)
            if attempt.counts_from_zero:
                newest = read_latest(self._db, LOGGED)
                self._uncut = {key for key, row in newest.items() if row.time < attempt.time}
        self._recount()

    def add(self, item: Item) -> None:
        """Keep an event or a sample for the next commit."""
        self._pending.append(item)

    @contextmanager
    def journal_entry(self, number: int) -> Iterator[None]:
        """Add what entry `number` of the journal contains in a block; one commit writes it all."""
        with self._entry_lock:
            yield
            self.journal_entries = number

    @property
    def pending(self) -> int:
        """How many rows the next commit will write."""
        return len(self._pending)

    def discard_pending(self) -> None:
        """Drop what was added since the last commit, because the record contains it already."""
        self._pending.clear()

    def commit(self) -> None:
        """Write all that was added, in one transaction."""
        with self._db_lock:
            self._commit()

    def commit_unless_busy(self) -> bool:
        """Do as `commit`, or return False while another thread uses the database."""
        if not self._db_lock.acquire(blocking=False):
            return False
        try:
            self._commit()
        finally:
            self._db_lock.release()
        return True

    def _commit(self) -> None:
        with self._entry_lock:
            batch, journal_entries = self._pending[:], self.journal_entries
        if not batch:
            return
        uncut = self._uncut.copy()
        try:
            self._files.restore_index()
            set_cache(self._db, len(self.ranks) + len(self._curves))
            self._db.execute("BEGIN IMMEDIATE")
            self._write(batch, time.time())
            self._db.execute(f"PRAGMA user_version = {journal_entries}")
            self._db.execute("COMMIT")
            self._journal_entries_written = journal_entries
        except Exception as error:  # also of a value that SQLite cannot store
            if self._db.in_transaction:  # a full disk has rolled back already
                self._db.execute("ROLLBACK")
            self._uncut = uncut
            with suppress(sqlite3.Error):  # of a damaged file, which `restore_database` replaces
                self._recount()
            raise self._cannot_write(error) from None
        del self._pending[: len(batch)]

    def restore_database(self) -> str:
        """Write the database again if somebody else has deleted or overwritten it.

        Return what was done to it and what is missing now, or an empty string. Where it was moved
        with its folder, SQLite could not finish it at its old path.
        """
        with self._db_lock:
            return "" if self._is_closed else self._restore_database()

    def _restore_database(self) -> str:
        done = self._files.find_damage(self.dir / DATABASE) or (
            "overwritten" if self._is_damaged else ""
        )
        if not done:
            return ""
        try:
            incomplete = salvage(self._db, self.dir / DATABASE)
            with closing(self._files), closing(self._db):
                self._open()
            self._restore_names()
            self._recount()
        except (sqlite3.Error, OSError) as error:
            raise self._cannot_write(error) from None
        self._is_damaged = False
        if done == MOVED and not incomplete:
            return ""
        missing = "nothing is missing"
        if incomplete:
            missing = f"some of what was recorded before is missing ({', '.join(incomplete)})"
        return f"{DATABASE} was {done} by somebody else and was written again; {missing}"

    def _restore_names(self) -> None:
        """Write the ranks and the names of curves, which are known whatever could be read."""
        self._write_ranks(self.ranks)
        curves = [(curve, name, rank) for (name, rank), curve in self._curves.items()]
        self._db.executemany("INSERT OR REPLACE INTO curves VALUES (?, ?, ?)", curves)
        self._db.execute(f"PRAGMA user_version = {self._journal_entries_written}")

    def set_state(self, **changes: Any) -> RunState:
        """Change fields of run.json."""
        self.state = msgspec.structs.replace(self.state, **changes)
        try:
            write_state(self.dir, self.state)
        except OSError as error:
            raise self._cannot_write(error) from None
        self.written_state = self.state
        return self.state

    def close(self) -> None:
        """Commit the rest and leave one plain file, which can be read without a -wal file."""
        with self._db_lock:
            self._is_closed = True
            try:
                # What a lock of another program refuses now is not tried again later.
                self._db.execute(f"PRAGMA busy_timeout = {1000 * LAST_COMMIT_S}")
                self._commit()
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                # Refused while somebody reads; the file then stays in WAL mode, which works too.
                with suppress(sqlite3.OperationalError):
                    self._db.execute("PRAGMA journal_mode = DELETE")
            finally:
                self._db.close()
                self._files.close()

    def _write(self, batch: list[Item], now: float) -> None:
        part: list[Item] = []
        for item in batch:
            if isinstance(item, Attempt):
                self._insert(part, now)
                self._discard_later_steps(item)
                part = []
            part.append(item)
        self._insert(part, now)

    def _discard_later_steps(self, attempt: Attempt) -> None:
        self._appenders[Window].discard(self._db, "step", attempt.last_kept)
        if attempt.counts_from_zero:
            self._uncut = set(self._curves.values())
        else:
            self._appenders[LoggedRow].discard(self._db, "step", attempt.last_kept)
        self._db.execute(
            f"UPDATE events SET kind = ? WHERE kind IN ({_KIND_MARKS}) AND step > ?",
            (UNDONE, *_KINDS_OF_A_STEP, attempt.last_kept),
        )
        self._known_events = self._find_events_at(attempt.step)

    def _find_events_at(self, step: int) -> set[tuple[str, int]]:
        """Return the events of a step from which ranks continue: they are not recorded twice."""
        if step == 0:  # they begin again: see Attempt.last_kept
            return set()
        query = f"SELECT DISTINCT kind, step FROM events WHERE kind IN ({_KIND_MARKS}) AND step = ?"
        return set(self._db.execute(query, (*_KINDS_OF_A_STEP, step)))

    def _insert(self, batch: list[Item], now: float) -> None:
        samples: dict[type, list[Any]] = {kind: [] for kind in self._appenders}
        events: list[Event] = []
        for item in batch:
            if isinstance(item, Logged):
                samples[LoggedRow] += self._rows_of(item)
            else:
                samples.get(type(item), events).append(item)
        # A run that had completed evaluates and saves its last step again: it counts once.
        events = [
            event for event in events if (_kind(event), _step(event)) not in self._known_events
        ]
        self._cut_curves(samples[LoggedRow])
        for kind, items in samples.items():
            if items:
                self._appenders[kind].append(self._db, items)
        self._db.executemany(
            "INSERT INTO events (id, time, kind, rank, step, body) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (id, *_event_row(event, now))
                for id, event in enumerate(events, self._last_event + 1)
            ],
        )
        self._last_event += len(events)
        self._write_ranks(update_ranks(self.ranks, events, now))

    def _write_ranks(self, ranks: Iterable[int]) -> None:
        marks = ", ".join("?" * len(RANK_FIELDS))
        self._db.executemany(
            f"INSERT OR REPLACE INTO ranks VALUES ({marks})",
            [msgspec.structs.astuple(self.ranks[rank]) for rank in ranks],
        )

    def _rows_of(self, logged: Logged) -> list[LoggedRow]:
        """Return what a rank has logged as rows, each with the number of its curve."""
        rows = []
        for name, stats in logged.values.items():
            rows.append(
                LoggedRow(
                    time=logged.time,
                    curve=self._curve_of(name, logged.rank),
                    step=logged.step,
                    n=stats.count,
                    total=stats.total,
                    low=stats.low,
                    high=stats.high,
                    newest=stats.last,
                )
            )
        return rows

    def _cut_curves(self, rows: list[LoggedRow]) -> None:
        """Discard the older rows of curves that a new attempt begins to log, from that step on."""
        last_kept: dict[int, int] = {}
        for row in rows if self._uncut else ():
            if row.curve in self._uncut:
                last_kept.setdefault(row.curve, row.step - 1)
        if last_kept:
            self._appenders[LoggedRow].discard(self._db, "step", last_kept)
            self._uncut -= last_kept.keys()

    def _curve_of(self, name: str, rank: int) -> int:
        """Return the number of a curve, which is new where the rank has not logged the name."""
        curve = self._curves.get((name, rank))
        if curve is None:
            curve = self._curves[name, rank] = len(self._curves) + 1
            self._db.execute("INSERT INTO curves VALUES (?, ?, ?)", (curve, name, rank))
        return curve

    def _recount(self) -> None:
        """Read what is in the tables, after rows were rolled back."""
        (last,) = self._db.execute("SELECT max(id) FROM events").fetchone()
        self._last_event = max(self._last_event, last or 0)
        for appender in self._appenders.values():
            appender.recount(self._db)
        curves = self._db.execute("SELECT id, name, rank FROM curves").fetchall()
        self._curves = {(name, rank): curve for curve, name, rank in curves}

    def _cannot_write(self, error: Exception) -> RunsFolderError:
        self._is_damaged |= is_damage(error)
        return cannot_write(self.dir, error)


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
