"""All runs of a folder as rows of a table, read as they change.

Ended runs are known by their small files alone; metrics.db is opened of live ones only, and of
those that ended without a summary. Benches are rows among them.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from runners.errors import DistrainError
from runners.record import Record
from runners.snapshot import Follower
from tui.data.rows import Row, ended_row, live_row

if TYPE_CHECKING:
    from runners.bench import Bench

BENCH_STATE = "bench.json"
FIRST_BATCH = 32  # rows: about what a screen shows
DETAILS = 64  # configs that are read in one go
MOST_DETAILS = 4 * DETAILS  # of a look, so that live runs need not wait for the rest
_SETTLED_S = 2.0  # a folder may change again within one tick of its clock


class News(NamedTuple):
    """What a look has found: rows that are new or differ, ids that are gone, folders that
    cannot be read (by name, each with the reason; None: as before).
    """

    rows: Sequence[Row] = ()
    gone: Sequence[str] = ()
    problems: dict[str, str] | None = None


class Lister:
    """Looks at a runs folder again and again; for one thread.

    A look at a folder where nothing runs costs one stat. `again` makes the next one look at
    every run, for what people note of it is not to be seen from outside. `behind` says that
    there is more to be read at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[str, Row] = {}
        self._live: dict[str, Follower] = {}
        self._benches: dict[str, Bench] = {}  # those that are live
        self._problems: dict[str, str] = {}
        self._lost: list[str] = []  # rows that were told and can be read no more
        self._stamps: dict[str, int] = {}
        self._seen: int | None = -1
        self.behind = False

    def again(self) -> None:
        """Trust nothing at the next look."""
        self._seen = -1

    def look(self, oldest_first: bool = False) -> Iterator[News]:
        """What has changed, in batches: the first one soon, details last."""
        told = dict(self._problems)
        yield from self._listed(oldest_first)
        if self._live or self._benches:
            yield News(rows=self._followed())
        if self._lost:
            lost, self._lost = self._lost, []
            yield News(gone=lost)
        if self._problems != told:
            yield News(problems=dict(self._problems))
        yield from self._detailed()

    def close(self) -> None:
        for follower in self._live.values():
            follower.record.close()
        self._live.clear()

    def _listed(self, oldest_first: bool) -> Iterator[News]:
        """Runs that came, went or were written to, where the folder has changed at all."""
        now = _changed(self.folder)
        if now == self._seen:
            return
        # What was written a moment ago may be written again without a new time.
        fresh = now is not None and abs(time.time() - now / 1e9) < _SETTLED_S
        self._seen = -1 if fresh else now
        names = sorted(self._names(), reverse=not oldest_first)
        there = {*names, ""}  # "" is the runs folder itself
        gone = [name for name in self._rows if name not in there]
        for name in {*gone, *(self._problems.keys() - there)}:
            self._forget(name)
        if gone:
            yield News(gone=gone)
        batch, size = [], FIRST_BATCH
        for name in names:
            if (row := self._if_new(name)) is not None:
                batch.append(row)
            if len(batch) >= size:
                yield News(rows=batch)
                batch, size = [], 2 * size
        if batch:
            yield News(rows=batch)

    def _names(self) -> list[str]:
        self._problems.pop("", None)
        try:
            with os.scandir(self.folder) as entries:
                return [e.name for e in entries if not e.name.startswith(".") and _is_folder(e)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._problems[""] = f"cannot read {self.folder}: {error.strerror}"
            return list(self._rows)

    def _if_new(self, name: str) -> Row | None:
        """The row of a run whose folder was written to since; live ones are followed anyway."""
        if name in self._live or name in self._benches:
            return None
        stamp = _changed(self.folder / name)
        if stamp is None or self._stamps.get(name) == stamp:
            return None
        row = self._read(name)
        if row is not None and not row.live:
            self._stamps[name] = stamp
        return row

    def _read(self, name: str) -> Row | None:
        self._problems.pop(name, None)
        try:
            if not (self.folder / name / "run.json").is_file():
                return self._read_bench(name)
            record = Record(self.folder / name)
            state = record.state
            if state.live:
                self._live[name] = Follower(record)
                return self._follow(name)
            row = ended_row(record, state)
        except Exception as error:
            self._cannot(name, error)
            return None
        return self._keep(name, row)

    def _read_bench(self, name: str) -> Row | None:
        if not (self.folder / name / BENCH_STATE).is_file():
            return None
        from runners.bench import Bench  # which a folder without one need not load

        return self._follow_bench(name, Bench(self.folder / name))

    def _follow_bench(self, name: str, bench: Bench) -> Row:
        from tui.data.benches import bench_row

        row = bench_row(bench)
        if row.live:
            self._benches[name] = bench
        else:
            self._benches.pop(name, None)
        return self._keep(name, row)

    def _cannot(self, name: str, error: Exception) -> None:
        """Whatever is wrong with one record, the others are listed."""
        if self._rows.pop(name, None) is not None:
            self._lost.append(name)
        known = isinstance(error, DistrainError)
        what = str(error) if known else f"{self.folder / name} cannot be read: {error!r}"
        self._problems[name] = what

    def _keep(self, name: str, row: Row) -> Row:
        known = self._rows.get(name)
        if known is not None and known.detailed and not row.detailed:
            row = msgspec.structs.replace(row, model=known.model, data=known.data)
        self._rows[name] = row
        return row

    def _followed(self) -> list[Row]:
        names = [*self._live, *self._benches]
        return [row for name in names if (row := self._follow(name)) is not None]

    def _follow(self, name: str) -> Row | None:
        if name in self._benches:
            return self._followed_bench(name)
        follower = self._live[name]
        try:
            follower.news()
            if follower.state.live:
                return self._keep(name, live_row(follower.snapshot(), follower.record))
        except Exception as error:
            self._drop(name)
            self._cannot(name, error)
            return None
        self._drop(name)
        return self._read(name)

    def _followed_bench(self, name: str) -> Row | None:
        try:
            return self._follow_bench(name, self._benches[name])
        except Exception as error:
            del self._benches[name]
            self._cannot(name, error)
            return None

    def _drop(self, name: str) -> None:
        self._live.pop(name).record.close()

    def _forget(self, name: str) -> None:
        self._rows.pop(name, None)
        self._stamps.pop(name, None)
        self._problems.pop(name, None)
        self._benches.pop(name, None)
        if name in self._live:
            self._drop(name)

    def _detailed(self) -> Iterator[News]:
        """Model and data of ended runs, and figures of those that left no summary."""
        bare = sorted((name for name, row in self._rows.items() if not row.detailed), reverse=True)
        self.behind = len(bare) > MOST_DETAILS
        bare = bare[:MOST_DETAILS]
        for start in range(0, len(bare), DETAILS):
            rows = [self._detail(name) for name in bare[start : start + DETAILS]]
            yield News(rows=rows)

    def _detail(self, name: str) -> Row:
        row, folder = self._rows[name], self.folder / name
        if not row.strategy:
            row = self._summed_up(row, folder)
        try:
            config = tomllib.loads((folder / "config.toml").read_text("utf-8"))
            model, data = config["model"]["name"], config["data"]["name"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            model = data = ""  # the run's own screen says what is wrong
        row = msgspec.structs.replace(row, model=str(model), data=str(data), detailed=True)
        self._rows[name] = row
        return row

    def _summed_up(self, row: Row, folder: Path) -> Row:
        try:
            with Record(folder) as record:
                return ended_row(record, record.state, record.summary())
        except DistrainError:
            return row


def _changed(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
