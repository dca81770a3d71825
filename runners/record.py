"""Record: what a run has left, read while it grows or long after.

A record is a run's folder: the small files of `state.py`, the measurements that `writer.py`
put into metrics.db (SQLite, WAL, one writer; the series are those of `series.py`), logs and
checkpoints. Readers never write to the database, and any number may read at once.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack, cast, overload

import msgspec
from msgspec import structs

from runners import jobs
from runners.config import RunConfig
from runners.errors import ConfigError, DistrainError, RunsFolderError
from runners.events import Attempt, Evaluation, Said, Window, decode
from runners.older import fill_in
from runners.rollup import Curve, Reading, Series
from runners.series import RANK_COLUMNS, SERIES, STEPS, over_ranks
from runners.state import (
    JOURNAL,
    LOST,
    UNFOLLOWED,
    Meta,
    RunState,
    Status,
    as_it_is,
    change_meta,
    create_run,
    new_run_id,
    not_a_record,
    read_meta,
    read_state,
)
from runners.summary import summarize
from runners.writer import UNDONE, RankInfo, RecordWriter

__all__ = [
    "Meta",
    "RankInfo",
    "Record",
    "RecordWriter",
    "RunState",
    "create_run",
    "in_trash",
    "list_records",
    "new_run_id",
    "points_of_each",
    "remove",
    "restore",
]

T = TypeVar("T", bound=msgspec.Struct)
TRASH = ".trash"
AGAIN = "~"  # before the number of one more of the same name in the trash


class Record:
    """A run's folder, read-only but for `set_meta`.

    Raises DistrainError where the folder is no record or of a format this version cannot read.
    Everything is read when asked for, so a live run can be asked again and again. May be used
    from several threads. Close it, or use it in a `with`.
    """

    def __init__(self, folder: Path | str) -> None:
        self.dir = Path(folder).absolute()
        self._read: tuple[tuple[int, int], RunState] | None = None
        self._db: sqlite3.Connection | None = None
        self._using = threading.RLock()
        # The folder's own name, for one that was copied or renamed is to be told from the first.
        self.id, self.created = self.dir.name, self._written().created

    def __enter__(self) -> Record:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @property
    def runs_dir(self) -> Path:
        """Where what follows from it belongs: of a run of a bench, where the bench is."""
        bench = self.dir.parent.parent
        return bench.parent if (bench / "bench.json").is_file() else self.dir.parent

    # --- the small files ----------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        """run.json; "failed" by SupervisorLost where it is live but its supervisor is gone, or
        writes to another folder. As long as a job that records it may go on it stays live, and
        `reason` says that nobody follows it.
        """
        written = self._written()
        state = as_it_is(written, self.id)
        if self._goes_on_alone(state) and state.job and not jobs.over(state.job):
            return structs.replace(written, reason=UNFOLLOWED.format(self.id))
        return state

    @property
    def unfollowed(self) -> bool:
        """Whether a job has recorded it since its supervisor was gone, or does so yet."""
        return self._goes_on_alone(as_it_is(self._written(), self.id))

    def _goes_on_alone(self, state: RunState) -> bool:
        lost = state.error is not None and state.reason == LOST
        return lost and state.job is not None and self.recorded_beside

    @property
    def recorded_beside(self) -> bool:
        """Whether the run is, or will be, recorded by its job, so that it needs no supervisor."""
        return (self.dir / JOURNAL).exists() or self.config.slurm.report == "files"

    @property
    def status(self) -> Status:
        return self.state.status

    @property
    def live(self) -> bool:
        return self.state.live

    @property
    def meta(self) -> Meta:
        return read_meta(self.dir)

    @property
    def name(self) -> str:
        """The name a person gave the run, or an empty one."""
        return self.meta.name

    def set_meta(self, **changes: Any) -> Meta:
        """Change name, notes, tags or pinned; raises DistrainError where that would lose some."""
        return change_meta(self.dir, **changes)

    @property
    def last_checkpoint(self) -> Path | None:
        """What a resumed run goes on from."""
        path = self.dir / "checkpoints" / "last.pt"
        return path.resolve() if path.exists() else None

    @cached_property
    def config(self) -> RunConfig:
        """config.toml; raises DistrainError where it is missing or broken."""
        try:
            return RunConfig.from_toml((self.dir / "config.toml").read_text("utf-8"))
        except OSError as error:
            raise not_a_record(self.dir, f"its config.toml: {error.strerror}") from None
        except (ConfigError, UnicodeDecodeError) as error:
            raise not_a_record(self.dir, f"its config.toml does not hold: {error}") from None

    def _written(self) -> RunState:
        try:
            stat = (self.dir / "run.json").stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
        except OSError:
            stamp = (0, 0)
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, read_state(self.dir))
        return self._read[1]

    # --- measurements -------------------------------------------------------------------------

    def keys(self, series: Series[Any] = STEPS) -> list[int]:
        """The ranks (or GPUs) that have rows."""
        with self._reading() as db:
            return series.keys(db) if db else []

    def curve(self, series: Series[Any], key: int, **how: Unpack[Reading]) -> Curve:
        """One curve; `how` (columns, points, axis, start, end) as for `Series.curves`."""
        with self._reading() as db:
            return series.curve(db, key, **how) if db else Curve({})

    def curves(
        self,
        series: Series[Any] = STEPS,
        keys: Iterable[int] | None = None,
        **how: Unpack[Reading],
    ) -> dict[int, Curve]:
        """The curve of every rank (or GPU), or of some."""
        with self._reading() as db:
            return series.curves(db, keys, **how) if db else {}

    def overall(self, **how: Unpack[Reading]) -> Curve:
        """The curve of the run: RUN_COLUMNS of `series.py`, whatever columns `how` names.

        Fewer points are read of each rank where there are many ranks. Where the ranks' curves
        are read anyway, `over_ranks` of them saves reading twice.
        """
        with self._reading():
            most = points_of_each(len(self.keys()))
            how["columns"] = RANK_COLUMNS
            how["points"] = min(how.get("points", most), most)
            return over_ranks(self.curves(**how).values())

    def totals(self, series: Series[Any] = STEPS) -> dict[int, dict[str, Any]]:
        """Exact sums of each rank over the whole run, least and greatest values, last values.

        `timed_samples` and `timed_seconds` leave warm-up out; `samples`, `seconds` do not.
        """
        with self._reading() as db:
            return series.totals(db) if db else {}

    @overload
    def latest(self) -> dict[int, Window]: ...
    @overload
    def latest(self, series: Series[T]) -> dict[int, T]: ...
    def latest(self, series: Series[Any] = STEPS) -> dict[int, Any]:
        """The last window of each rank (or sample of each GPU)."""
        with self._reading() as db:
            return series.latest(db) if db else {}

    def raw(self, series: Series[Any], key: int, chunk: int = 1000) -> Iterator[Sequence[Any]]:
        """Every row in order, as `series.fields`; constant memory. `series.struct` rebuilds.

        Rows that are taken back meanwhile (see Attempt) may be among them.
        """
        with self._database() as db:
            if db:
                yield from series.raw(db, key, chunk=chunk)

    # --- what was said ------------------------------------------------------------------------

    def ranks(self, windows: dict[int, Window] | None = None) -> list[RankInfo]:
        """What is known of every rank, by rank, up to its last window.

        `windows` spares a reading where `latest()` has just been asked for.
        """
        columns = RankInfo.__struct_fields__
        known: dict[int, RankInfo] = {}
        for row in self._query(f"SELECT {', '.join(columns)} FROM ranks"):
            info = msgspec.convert(dict(zip(columns, row, strict=True)), RankInfo, strict=False)
            known[info.rank] = info
        for rank, window in (self.latest() if windows is None else windows).items():
            info = known.setdefault(rank, RankInfo(rank=rank))
            info.step, info.epoch = max(info.step, window.step), window.epoch
            info.last_seen = max(info.last_seen, window.time)
        return [known[rank] for rank in sorted(known)]

    def events(
        self, after_id: int = 0, kinds: Collection[str] | None = None, limit: int | None = None
    ) -> Iterator[tuple[int, Said]]:
        """(id, event) with id > `after_id` in order of arrival; kinds are the events' types.

        Windows and samples are not among them: see `raw`. Nor is what was taken back; who has
        read it before finds an Attempt after it.
        """
        where = "kind != ?" if kinds is None else f"kind IN ({', '.join('?' * len(kinds))})"
        kinds = (UNDONE,) if kinds is None else kinds
        query = f"SELECT id, body FROM events WHERE id > ? AND {where} ORDER BY id LIMIT ?"
        while limit is None or limit > 0:
            chunk = 1000 if limit is None else min(limit, 1000)
            rows = self._query(query, (after_id, *kinds, chunk))
            for after_id, body in rows:
                try:
                    event = decode(body.encode())
                except (msgspec.MsgspecError, AttributeError) as error:  # a blob or a number
                    why = f"its event {after_id} cannot be read ({error})"
                    raise not_a_record(self.dir, why) from None
                yield after_id, event
            if len(rows) < chunk:
                return
            limit = None if limit is None else limit - chunk

    def evaluations(self) -> list[Evaluation]:
        """Every evaluation so far, in order."""
        return [cast(Evaluation, event) for _, event in self.events(kinds=("evaluation",))]

    def attempts(self) -> list[Attempt]:
        """Each time that the ranks were started anew, in order."""
        return [cast(Attempt, event) for _, event in self.events(kinds=("attempt",))]

    # --- in one object ------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """What `distrain run --json` prints.

        `epochs` (full ones) and `steps` count from the start of the training, also before a
        resume; `samples`, `samples_per_s` and `duration_s` are of this run alone. `steps_again`
        were done twice, as ranks were started anew; everything else counts them once.
        """
        state = self.state
        if not state.summary or not state.summary.keys() >= {"run_id", "strategy", "eval"}:
            return summarize(self)
        where = {"run_id": self.id, "dir": str(self.dir)}
        of_older = {"attempts": 0, "steps_again": 0}
        return {**of_older, **state.summary, **where, "status": state.status}

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """The database as it is at one moment, for rows may vanish between two queries; not across
        a `yield`, as it holds up the writer's checkpoints.
        """
        with self._using, self._database() as db:
            if db is None or db.in_transaction:
                yield db
                return
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.rollback()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection | None]:
        """The database, read-only; None while there is none yet."""
        with self._using:
            if self._db is None:
                self._db = _connect(self.dir / "metrics.db")
        try:
            yield self._db
        except sqlite3.DatabaseError as error:
            raise not_a_record(self.dir, f"its metrics.db cannot be read ({error})") from None

    def _query(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._reading() as db:
            return db.execute(query, values).fetchall() if db else []


# Rows that are read of all ranks together for a curve of the run, and of each rank at least.
_ROWS, _LEAST = 16_000, 128


def points_of_each(ranks: int) -> int:
    """How many points of each of so many ranks a curve of the run is made of at most."""
    return max(_ROWS // max(ranks, 1), _LEAST)


def list_records(
    runs_dir: Path, on_error: Callable[[DistrainError], None] | None = None
) -> list[Record]:
    """The records of a runs folder, oldest first; none where there is no such folder.

    `on_error` hears of each folder that has a run.json but cannot be read. Raises
    RunsFolderError.
    """
    records = []
    try:
        folders = [path for path in Path(runs_dir).iterdir() if _is_one(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunsFolderError(f"cannot read the runs folder {runs_dir}: {error.strerror}") from None
    for folder in folders:
        try:
            records.append(Record(folder))
        except DistrainError as error:
            if on_error is not None:
                on_error(error)
    return sorted(records, key=lambda record: (record.created, record.id))


def _is_one(path: Path) -> bool:
    with suppress(OSError):  # an entry that cannot be looked at hides no other
        return (path / "run.json").is_file()
    return False


def remove(record: Record) -> Path:
    """Move a record to the trash of its runs folder; `restore` undoes it.

    Raises DistrainError for a live run, RunsFolderError where the folder refuses.
    """
    if record.live:
        raise DistrainError(f"{record.id} is {record.status}; stop it before removing it")
    record.close()
    return discard(record.dir)


def discard(folder: Path) -> Path:
    """Move a folder to the trash beside it; raises RunsFolderError."""
    trash, name = folder.parent / TRASH, folder.name
    names = chain([name], (f"{name}{AGAIN}{number}" for number in count(2)))
    return _move(folder, next(trash / name for name in names if not (trash / name).exists()))


def in_trash(runs_dir: Path, wanted: str) -> Record:
    """A removed record, by its id or name (the newest of that name); raises DistrainError."""
    for record in reversed(list_records(Path(runs_dir) / TRASH)):
        if wanted and wanted in (record.id, record.name):
            return record
    raise DistrainError(f"there is no {wanted or 'run without a name'} in the trash of {runs_dir}")


def restore(folder: Path) -> Path:
    """Take a folder back out of the trash; raises RunsFolderError."""
    return _move(folder, folder.parents[1] / folder.name.partition(AGAIN)[0])


def _move(source: Path, target: Path) -> Path:
    if target.exists():
        raise RunsFolderError(f"{target} is there already; rename one of the two first")
    try:
        target.parent.mkdir(exist_ok=True)
        return source.rename(target)
    except OSError as error:
        raise RunsFolderError(f"cannot move {source} to {target}: {error.strerror}") from None


def _connect(path: Path) -> sqlite3.Connection | None:
    if not path.exists():
        return None
    try:
        try:
            return _opened(path, "mode=ro")
        except sqlite3.OperationalError:
            # A WAL database wants to make files beside it. Where that is forbidden nobody else
            # writes either, so it may be read as it lies, unless its last part is in a WAL.
            wal = path.with_name(path.name + "-wal")
            if wal.exists() and wal.stat().st_size:
                raise
            return _opened(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError as error:
        raise not_a_record(path.parent, f"its metrics.db cannot be read ({error})") from None


def _opened(path: Path, how: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, check_same_thread=False)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
        for series in SERIES:
            fill_in(db, series)
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db
