"""Scan the runs folder for runs and benches, as rows of a table.

Ended runs are read from their small files. metrics.db is opened only for live runs and for those
that ended without a summary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from distrain.runners.errors import DistrainError
from distrain.runners.records.flat_config import FlatConfig, read_flat_config
from distrain.runners.records.run_folder import RunFolder
from distrain.tui.data.run_rows import BENCH, RunRow, ended_row, live_row

if TYPE_CHECKING:
    from distrain.runners.bench import Bench
    from distrain.runners.records.snapshot import Follower

BENCH_STATE = "bench.json"
FIRST_BATCH = 32  # rows, about what a screen shows
GROWTH = 4  # of the next batch: each of them is sorted and painted
DETAILS = 64  # configs that are read for one batch
MOST_DETAILS = 4 * DETAILS  # of a scan, so that live runs need not wait for the rest
_SETTLED_S = 2.0  # a folder may change again within one tick of the file system's clock


class FolderChanges(NamedTuple):
    """A batch of changes in the folder.

    `rows` are new or changed, `gone` are ids that were removed. `problems` are the folders that
    cannot be read with the reasons, or None if they are as before.
    """

    rows: Sequence[RunRow] = ()
    gone: Sequence[str] = ()
    problems: dict[str, str] | None = None


class RunScanner:
    """Scans a runs folder repeatedly. Not thread-safe.

    A scan of a folder without live runs costs one stat, and one for each bench. `has_more` says
    that details are left to read by another scan.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[str, RunRow] = {}
        self._live: dict[str, Follower] = {}
        self._benches: dict[str, Bench] = {}  # those that are live
        self._problems: dict[str, str] = {}
        self._unreadable: list[str] = []  # rows that were reported and cannot be read any more
        self._lost: set[str] = set()  # those that may be read again later
        self._stamps: dict[str, int] = {}
        self._state_stamps: dict[str, int | None] = {}  # of live runs and benches
        self._folder_stamp: int | None = -1
        self._device: int | None = None  # of the file system on which there were runs
        self.has_more = False

    def reset(self) -> None:
        """Check every run at the next scan: notes and tags do not change the folder's time."""
        self._folder_stamp = -1

    def scan(self, oldest_first: bool = False) -> Iterator[FolderChanges]:
        """Yield the changes in batches: a small one first, details last."""
        problems_before = dict(self._problems)
        yield from self._scan_folder(oldest_first)
        yield from self._scan_ended_benches()
        found = [row for name in sorted(self._lost) if (row := self._read(name)) is not None]
        if found:
            yield FolderChanges(rows=found)
        if self._live or self._benches:
            yield FolderChanges(rows=self._live_rows())
        if self._unreadable:
            gone = self._unreadable
            self._unreadable = []
            yield FolderChanges(gone=gone)
        if self._problems != problems_before:
            yield FolderChanges(problems=dict(self._problems))
        yield from self._read_details()

    def scan_states(self) -> Iterator[FolderChanges]:
        """Yield runs that are new and live ones whose state was written again: what somebody who
        does not see the table wants to know. It costs a stat of each live run.
        """
        yield from self._scan_folder(oldest_first=False)
        yield from self._scan_ended_benches()
        names = [name for name in (*self._live, *self._benches) if self._has_new_state(name)]
        rows = [row for name in names if (row := self._follow(name)) is not None]
        if rows:
            yield FolderChanges(rows=rows)

    def _has_new_state(self, name: str) -> bool:
        file = "run.json" if name in self._live else BENCH_STATE
        before = self._state_stamps.get(name)
        self._state_stamps[name] = _modified(self.folder / name / file)
        return before != self._state_stamps[name]

    def close(self) -> None:
        for follower in self._live.values():
            follower.record.close()
        self._live.clear()

    def _scan_folder(self, oldest_first: bool) -> Iterator[FolderChanges]:
        """Yield runs that were added, removed or written to, if the folder has changed."""
        stamp = _modified(self.folder)
        if stamp == self._folder_stamp:
            return
        # A folder changed a moment ago may change again without a new time.
        is_fresh = stamp is not None and abs(time.time() - stamp / 1e9) < _SETTLED_S
        self._folder_stamp = -1 if is_fresh else stamp
        names = sorted(self._names(), reverse=not oldest_first)
        existing = {*names, ""}  # "" is the runs folder itself
        gone = [name for name in self._rows if name not in existing]
        self._lost &= existing
        for name in {*gone, *(self._problems.keys() - existing)}:
            self._forget(name)
        if gone:
            yield FolderChanges(gone=gone)
        batch: list[RunRow] = []
        size = FIRST_BATCH
        for name in names:
            if (row := self._read_if_changed(name)) is not None:
                batch.append(row)
            if len(batch) >= size:
                yield FolderChanges(rows=batch)
                batch = []
                size *= GROWTH
        if batch:
            yield FolderChanges(rows=batch)

    def _scan_ended_benches(self) -> Iterator[FolderChanges]:
        """Yield benches that were resumed in their own folders: the runs folder has not changed."""
        ended = [name for name, row in self._rows.items() if row.kind == BENCH and not row.live]
        rows = [row for name in ended if (row := self._read_if_changed(name)) is not None]
        if rows:
            yield FolderChanges(rows=rows)

    def _names(self) -> list[str]:
        self._problems.pop("", None)
        names: list[str] = []
        device = None
        try:
            with os.scandir(self.folder) as entries:
                names = [e.name for e in entries if not e.name.startswith(".") and _is_folder(e)]
            device = os.stat(self.folder).st_dev
        except FileNotFoundError:
            pass
        except OSError as error:
            self._problems[""] = f"cannot read {self.folder}: {error.strerror}"
            return list(self._rows)
        if names:
            self._device = device
        elif self._device not in (None, device):
            what = "was moved or deleted" if device is None else "is no longer mounted"
            self._problems[""] = f"{self.folder} {what}; its runs are listed once it is back"
        return names

    def _read_if_changed(self, name: str) -> RunRow | None:
        """Return the row of a run whose folder has changed; live ones are followed anyway."""
        if name in self._live or name in self._benches:
            return None
        stamp = _modified(self.folder / name)
        if stamp is None or self._stamps.get(name) == stamp:
            return None
        row = self._read(name)
        if row is not None and not row.live:
            self._stamps[name] = stamp
        return row

    def _read(self, name: str) -> RunRow | None:
        self._problems.pop(name, None)
        try:
            if not os.path.lexists(self.folder / name / "run.json"):
                return self._read_bench(name)
            folder = RunFolder(self.folder / name)
            state = folder.state
            if state.live:
                self._live[name] = _follower(folder.dir)
                return self._follow(name)
            row = ended_row(folder, state)
        except Exception as error:
            self._report_problem(name, error)
            return None
        return self._keep(name, row)

    def _read_bench(self, name: str) -> RunRow | None:
        if not os.path.lexists(self.folder / name / BENCH_STATE):
            return None
        from distrain.runners.bench import Bench  # not loaded for folders without a bench

        return self._follow_bench(name, Bench(self.folder / name))

    def _follow_bench(self, name: str, bench: Bench) -> RunRow:
        from distrain.tui.data.bench_feed import bench_row

        row = bench_row(bench)
        if row.live:
            self._benches[name] = bench
        else:
            self._benches.pop(name, None)
        return self._keep(name, row)

    def _report_problem(self, name: str, error: Exception) -> None:
        if self._rows.pop(name, None) is not None:
            self._unreadable.append(name)
            self._lost.add(name)
        if isinstance(error, DistrainError):
            self._problems[name] = str(error)
        else:
            self._problems[name] = f"cannot read {self.folder / name}: {error!r}"

    def _keep(self, name: str, row: RunRow) -> RunRow:
        known = self._rows.get(name)
        if known is not None and known.detailed and not row.detailed:
            kept = {"model": known.model, "data": known.data, "config": known.config}
            row = msgspec.structs.replace(row, **kept)
        self._rows[name] = row
        self._lost.discard(name)
        return row

    def _live_rows(self) -> list[RunRow]:
        names = [*self._live, *self._benches]
        return [row for name in names if (row := self._follow(name)) is not None]

    def _follow(self, name: str) -> RunRow | None:
        if name in self._benches:
            return self._follow_live_bench(name)
        follower = self._live[name]
        record = follower.record
        try:
            follower.new_events(kinds=())
            if follower.state.live:
                known = self._rows.get(name)
                flat = known.config if known and known.config else read_flat_config(record.dir)
                return self._keep(name, live_row(follower.snapshot(), record, flat))
        except Exception as error:
            self._drop(name)
            self._report_problem(name, error)
            return None
        self._drop(name)
        return self._read(name)

    def _follow_live_bench(self, name: str) -> RunRow | None:
        try:
            return self._follow_bench(name, self._benches[name])
        except Exception as error:
            del self._benches[name]
            self._report_problem(name, error)
            return None

    def _drop(self, name: str) -> None:
        self._live.pop(name).record.close()

    def _forget(self, name: str) -> None:
        self._rows.pop(name, None)
        self._lost.discard(name)
        self._stamps.pop(name, None)
        self._state_stamps.pop(name, None)
        self._problems.pop(name, None)
        self._benches.pop(name, None)
        if name in self._live:
            self._drop(name)

    def _read_details(self) -> Iterator[FolderChanges]:
        """Yield ended runs with model and data; those without a summary also with their figures."""
        bare = sorted((name for name, row in self._rows.items() if not row.detailed), reverse=True)
        self.has_more = len(bare) > MOST_DETAILS
        bare = bare[:MOST_DETAILS]
        for start in range(0, len(bare), DETAILS):
            rows = [self._detail(name) for name in bare[start : start + DETAILS]]
            yield FolderChanges(rows=rows)

    def _detail(self, name: str) -> RunRow:
        row = self._rows[name]
        folder = self.folder / name
        if not row.strategy:
            row = self._summarize(row, folder)
        config = read_flat_config(folder)
        row = msgspec.structs.replace(
            row,
            model=row.model
            or os.path.basename(_text(config, "script.path", "script.module", "model.name")),
            data=row.data or _text(config, "data.name"),
            config=config,
            detailed=True,
        )
        self._rows[name] = row
        return row

    def _summarize(self, row: RunRow, folder: Path) -> RunRow:
        from distrain.runners.records.reader import Record  # reads metrics.db

        try:
            with Record(folder) as record:
                return ended_row(record, record.state, record.summary())
        except DistrainError:
            return row


def _follower(folder: Path) -> Follower:
    from distrain.runners.records.reader import Record  # not loaded where no run is live
    from distrain.runners.records.snapshot import Follower

    return Follower(Record(folder))


def _text(config: FlatConfig, *keys: str) -> str:
    """Return the first of some settings that the config has, or an empty text."""
    return next((str(config[key]) for key in keys if config.get(key)), "")


def _modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
