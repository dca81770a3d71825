"""Record: a run's folder, read while the run is live or long after.

A record is the small files of `state` and `meta`, the measurements in metrics.db, logs and
checkpoints. Readers never write to the database, and any number may read at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast, overload

import msgspec

from distrain.runners import formatting
from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.protocol.events import (
    Attempt,
    Evaluation,
    Event,
    Int,
    Message,
    ScriptSettings,
    Window,
)
from distrain.runners.records import untrusted
from distrain.runners.records.database import DATABASE, UNDONE, open_for_reading
from distrain.runners.records.ranks import RANK_FIELDS, RankInfo, rank_info
from distrain.runners.records.run_folder import RunFolder
from distrain.runners.records.state import RunState, newer_record, not_a_record
from distrain.runners.records.summary import summarize
from distrain.runners.records.timeseries.curves import Curve, CurveQuery, read_curve, read_curves
from distrain.runners.records.timeseries.logged_curve import LOGGED_COLUMNS
from distrain.runners.records.timeseries.logged_curve import over_ranks as logged_over_ranks
from distrain.runners.records.timeseries.rollup import Series
from distrain.runners.records.timeseries.rows import (
    count_rows,
    read_latest,
    read_raw,
    read_totals,
)
from distrain.runners.records.timeseries.run_curve import RANK_COLUMNS, over_ranks, points_per_rank
from distrain.runners.records.timeseries.series import LOGGED, PROCS, STEPS

T = TypeVar("T", bound=msgspec.Struct)
Value = TypeVar("Value")
_EVENTS_AT_ONCE = 256


class Record(RunFolder):
    """A run's folder with its measurements, read-only except for `set_meta`.

    Raises DistrainError where the folder is not a record or has a format that this version cannot
    read. Everything is read when asked for, so a live run can be read repeatedly. May be used
    from several threads. Close it, or use it in a `with`.
    """

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder)
        self._db: sqlite3.Connection | None = None
        self._identity = (0, 0)  # of the database's file
        self._lock = threading.RLock()
        self._logged: dict[str, dict[int, int]] = {}  # as `logged` returns it
        self._last_curve = 0

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, once other threads have ended what they read now.

        Whoever reads again opens it again.
        """
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    # --- measurements -------------------------------------------------------------------------

    @property
    def has_measurements(self) -> bool:
        """Whether there is a database; a run that never started has none."""
        return os.path.lexists(self.dir / DATABASE)

    def keys(self, series: Series[Any] = STEPS) -> list[int]:
        """Return the ranks (or GPUs, hosts) that have rows."""
        with self._transaction() as db:
            return list(count_rows(db, series)) if db else []

    def curve(self, series: Series[Any], key: int, **query: Unpack[CurveQuery]) -> Curve:
        """Return one curve; `query` (columns, points, axis, start, end) as for `read_curves`."""
        with self._transaction() as db:
            return read_curve(db, series, key, **query) if db else Curve({})

    def curves(
        self,
        series: Series[Any] = STEPS,
        keys: Iterable[int] | None = None,
        **query: Unpack[CurveQuery],
    ) -> dict[int, Curve]:
        """Return the curves of all ranks (or GPUs, hosts), or of those in `keys`."""
        with self._transaction() as db:
            return read_curves(db, series, keys, **query) if db else {}

    def overall(self, **query: Unpack[CurveQuery]) -> Curve:
        """Return the curve of the run: RUN_COLUMNS of `run_curve`, whatever columns are asked for.

        Fewer points are read of each rank where there are many ranks. Where the ranks' curves
        are read anyway, `over_ranks` of them saves reading twice.
        """
        with self._transaction():
            most = points_per_rank(len(self.keys()))
            query["columns"] = RANK_COLUMNS
            query["points"] = min(query.get("points", most), most)
            return over_ranks(self.curves(**query).values())

    def totals(
        self,
        series: Series[Any] = STEPS,
        columns: Iterable[str] | None = None,
        since: Mapping[int, float] | None = None,
    ) -> dict[int, dict[str, Any]]:
        """Return each rank's exact sums, minima, maxima and last values: see `read_totals`.

        They cover the whole run or, for the ranks of `since`, the time from there on.
        `timed_samples` and `timed_seconds` leave warm-up out; `samples`, `seconds` do not.
        """
        with self._transaction() as db:
            return read_totals(db, series, columns, since) if db else {}

    @overload
    def latest(self) -> dict[int, Window]: ...
    @overload
    def latest(self, series: Series[T]) -> dict[int, T]: ...
    def latest(self, series: Series[Any] = STEPS) -> dict[int, Any]:
        """Return the last window of each rank (or sample of each GPU, host)."""
        with self._transaction() as db:
            return read_latest(db, series) if db else {}

    def logged(self) -> Mapping[str, Mapping[int, int]]:
        """Return the curves that a script has logged: by name, then rank, the key in LOGGED.

        Names are in the order in which they were first logged. Only new ones are read again.
        """
        query = "SELECT id, name, rank FROM curves WHERE id > ? ORDER BY id"
        with self._lock:
            for row in self._query(query, (self._last_curve,)):
                try:
                    curve, name, rank = msgspec.convert(row, tuple[Int, str, Int])
                except msgspec.ValidationError as error:
                    raise self._damaged(error) from None
                self._logged.setdefault(formatting.single_line(name), {})[rank] = curve
                self._last_curve = curve
            return {**self._logged}

    def last_logged(self, names: Iterable[str] | None = None) -> dict[str, float | None]:
        """Return the last value of each name that a script has logged, of its lowest rank.

        `names` defaults to all; those that were not logged are left out.
        """
        logged = self.logged()
        wanted = logged if names is None else [name for name in names if name in logged]
        curves = {name: logged[name][min(logged[name])] for name in wanted}
        with self._transaction() as db:
            latest = read_latest(db, LOGGED, curves.values()) if db else {}
        return {name: latest[curve].newest for name, curve in curves.items() if curve in latest}

    def logged_curve(self, name: str, **query: Unpack[CurveQuery]) -> Curve:
        """Return the curve of a name over all ranks: see `logged_curve.over_ranks`."""
        curves = self.logged().get(name, {}).values()
        most = points_per_rank(len(curves))
        query["columns"] = LOGGED_COLUMNS
        query["points"] = min(query.get("points", most), most)
        return logged_over_ranks(self.curves(LOGGED, curves, **query).values())

    def script_settings(self) -> ScriptSettings:
        """Return what the lowest rank of a script has reported of its settings."""
        by_rank: dict[int, ScriptSettings] = {}
        for _, event in self.events(kinds=("script_settings",)):
            event = cast(ScriptSettings, event)
            before = by_rank[event.rank].config if event.rank in by_rank else {}
            config = before | event.config
            by_rank[event.rank] = msgspec.structs.replace(event, config=config)
        return by_rank[min(by_rank)] if by_rank else ScriptSettings(time=0.0, rank=0)

    def raw(self, series: Series[Any], key: int, chunk: int = 1000) -> Iterator[Sequence[Any]]:
        """Yield every row in order, values as in `series.fields`, in constant memory.

        Rows that are discarded meanwhile (see Attempt) may be among them.
        """
        after = -1
        while True:
            with self._lock, self._database() as db:
                rows, after = read_raw(db, series, key, after, chunk) if db else ([], after)
            yield from rows
            if not rows:
                return

    def samples(self, series: Series[T], key: int, chunk: int = 1000) -> Iterator[T]:
        """Yield what `raw` does as structs."""
        for row in self.raw(series, key, chunk):
            try:
                item = series.struct(row)
            except sqlite3.DatabaseError as error:
                raise self._damaged(error) from None
            yield item

    # --- events -------------------------------------------------------------------------------

    def ranks(self, windows: dict[int, Window] | None = None) -> list[RankInfo]:
        """Return what is known of every rank up to its last window, in order of ranks.

        Pass what `latest()` has just returned as `windows` to save reading it again.
        """
        known: dict[int, RankInfo] = {}
        for row in self._query(f"SELECT {', '.join(RANK_FIELDS)} FROM ranks"):
            try:
                info = rank_info(row)
            except msgspec.ValidationError as error:
                raise self._damaged(error) from None
            known[info.rank] = info
        for rank, window in (self.latest() if windows is None else windows).items():
            info = known.setdefault(rank, RankInfo(rank=rank))
            info.step = max(info.step, window.step)
            info.epoch = window.epoch
            info.last_seen = max(info.last_seen, window.time)
        return [known[rank] for rank in sorted(known)]

    def events(
        self, after_id: int = 0, kinds: Collection[str] | None = None, limit: int | None = None
    ) -> Iterator[tuple[int, Message]]:
        """Yield (id, event) with id > `after_id` in order of arrival.

        `kinds` are the events' types on the wire. Windows and samples are not among them: see
        `raw`. Discarded events are not yielded; an Attempt event tells a reader that it has read
        such events.
        """
        where = "kind != ?"
        values: tuple[str, ...] = (UNDONE,)
        if kinds is not None:
            where = f"kind IN ({', '.join('?' * len(kinds))})"
            values = tuple(kinds)
        query = f"SELECT id, body FROM events WHERE id > ? AND {where} ORDER BY id LIMIT ?"
        while limit is None or limit > 0:
            chunk = _EVENTS_AT_ONCE if limit is None else min(limit, _EVENTS_AT_ONCE)
            rows = self._query(query, (after_id, *values, chunk))
            for after_id, body in rows:
                yield after_id, self._decode_event(after_id, body)
            if len(rows) < chunk:
                return
            limit = None if limit is None else limit - chunk

    def _decode_event(self, number: int, body: Any) -> Message:
        try:
            event = untrusted.decode(body.encode(), cast(type[Event], Message))
        except (ValueError, AttributeError) as error:  # a blob or a number
            why = f"its event {number} cannot be read ({error})"
            if "Invalid enum value" in str(error) or "at `$.type`" in str(error):
                raise newer_record(self.dir, why) from None
            raise not_a_record(self.dir, why) from None
        assert isinstance(event, Message)
        if isinstance(event, Evaluation):  # of a script, which may use any names
            return msgspec.structs.replace(event, metrics=_printable_names(event.metrics))
        return event

    def evaluations(self) -> list[Evaluation]:
        """Return every evaluation so far, in order."""
        return [cast(Evaluation, event) for _, event in self.events(kinds=("evaluation",))]

    def attempts(self) -> list[Attempt]:
        """Return each restart of the ranks, in order."""
        return [cast(Attempt, event) for _, event in self.events(kinds=("attempt",))]

    # --- summary ------------------------------------------------------------------------------

    def summary(self, state: RunState | None = None) -> dict[str, Any]:
        """Return what `distrain run --json` prints; `state` saves reading it again.

        `epochs` (full ones) and `steps` count from the start of the training, also before a
        resume; `samples`, `samples_per_s` and `duration_s` are of this run alone. `steps_again`
        steps were repeated because ranks were restarted; everything else counts them once.
        """
        state = state or self.state
        if not state.summary:
            with self.one_moment():
                return summarize(
                    self.dir,
                    state,
                    self.config,
                    self.totals(),
                    self.evaluations(),
                    self.attempts(),
                    self.last_logged(),
                    self.script_settings(),
                    bool(self.keys(PROCS)),
                )
        defaults = {"attempts": 0, "steps_again": 0}  # not in summaries of older versions
        # The folder may have been moved, and the status is checked: both may differ from run.json.
        current = {"run_id": self.id, "dir": str(self.dir), "status": state.status}
        return {**defaults, **state.summary, **current}

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Read the database in the block as it is at one moment, so that figures fit together.

        Keep the block short: it delays the writer's checkpoints.
        """
        with self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection | None]:
        """Read the database as it is at one moment, as rows may vanish between two queries.

        Not to be held across a `yield`: it delays the writer's checkpoints.
        """
        with self._lock, self._database() as db:
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
        """Open the database read-only; yield None before it exists. Needs the lock."""
        try:
            self._open_database()
            yield self._db
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from None
        except OSError as error:
            raise self._damaged(error.strerror) from None

    def _open_database(self) -> None:
        """Open the database where there is one, also where another file has taken its place."""
        path = self.dir / DATABASE
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return
        identity = found.st_dev, found.st_ino
        if self._db is not None and not self._db.in_transaction and identity != self._identity:
            self.close()
        if self._db is None:
            self._db = open_for_reading(path)
            self._identity = identity

    def _damaged(self, why: object) -> DistrainError:
        return not_a_record(self.dir, f"its metrics.db cannot be read ({why})")

    def _query(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._transaction() as db:
            return db.execute(query, values).fetchall() if db else []


def list_records(
    runs_dir: Path, on_error: Callable[[DistrainError], None] | None = None
) -> list[Record]:
    """Return the records of a runs folder, oldest first; none where there is no such folder.

    `on_error` is called for each folder that has a run.json but cannot be read. Raises
    RunsFolderError.
    """
    records = []
    try:
        names = [name for name in os.listdir(runs_dir) if _has_run_json(f"{runs_dir}/{name}")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunsFolderError(f"cannot read the runs folder {runs_dir}: {error.strerror}") from None
    for name in names:
        try:
            records.append(Record(f"{runs_dir}/{name}"))
        except DistrainError as error:
            if on_error is not None:
                on_error(error)
    return sorted(records, key=lambda record: (record.created, record.id))


def _has_run_json(folder: str) -> bool:
    return os.path.lexists(f"{folder}/run.json")


def _printable_names(values: Mapping[str, Value]) -> dict[str, Value]:
    return {formatting.single_line(name): value for name, value in values.items()}
