"""Exports of a record: CSV, JSON lines of everything, TensorBoard event files."""

from __future__ import annotations

import contextlib
import csv
import heapq
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import IO, Any, Literal, get_args

import msgspec

from distrain.models.errors import nearest
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import as_dict
from distrain.runners.records.database import DATABASE
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.curves import Curve
from distrain.runners.records.timeseries.logged_curve import LOGGED_COLUMNS
from distrain.runners.records.timeseries.logged_curve import over_ranks as logged_over_ranks
from distrain.runners.records.timeseries.rollup import Series
from distrain.runners.records.timeseries.run_curve import RANK_COLUMNS, over_ranks
from distrain.runners.records.timeseries.series import GPU, LOGGED, SERIES, STEPS
from distrain.runners.system.files import lock_within, open_replacement, require_regular

Format = Literal["csv", "jsonl", "tensorboard"]
Table = Literal["steps", "logged"]
_TimedObject = tuple[float, dict[str, Any]]

# TensorBoard itself shows 1,000 points of a scalar; runs with fewer windows are exported in full.
POINTS = 10_000
MOST_STEPS = 1 << 53  # others are damaged
LOGGED_POINTS = 2_000_000  # of all curves of a script together, but 1,000 of each
ROWS_AT_ONCE = 50_000
LOGGED_HEADER = ("rank", "name", "time", "step", "count", "mean", "min", "max", "last")
RANK_TAGS = ("loss", "samples_per_s", "lr")
TENSORBOARD_DRAFT = ".distrain-export"
_NOT_IN_TAGS = re.compile(r"[^-/\w.]")  # what tensorboardX replaces
GPU_TAGS = ("utilisation", "memory_used", "power", "temperature", "sm_clock", "memory_clock")


def export(
    record: Record,
    to: Format = "csv",
    out: Path | IO[str] | None = None,
    table: Table | None = None,
) -> None:
    """Write a record to `out`: a file for csv and jsonl, a folder for tensorboard.

    Without `out`, csv and jsonl go to stdout. csv has the rows of one `table`: "steps" (the
    default) has one per window, "logged" one per point of each curve that a script has logged.
    jsonl has one object per line in order of time, each with its `type`. Both stream. Raises
    DistrainError.
    """
    if to not in get_args(Format):
        raise DistrainError(f"cannot export to {to!r}{nearest(to, get_args(Format))}")
    if table is not None and to != "csv":
        raise DistrainError(f"--table chooses the rows of csv; {to} contains all of them")
    if record.state.summary and not record.has_measurements:
        raise DistrainError(
            f"there is nothing to export: the {DATABASE} of {record.dir} is missing"
        )
    attempts = record.attempts()
    _export(record, to, out, table or "steps")
    if record.attempts() != attempts:
        raise DistrainError("the ranks were restarted during the export; export the run again")


def _export(record: Record, to: Format, out: Path | IO[str] | None, table: Table) -> None:
    try:
        if to == "tensorboard":
            if not isinstance(out, Path):
                raise DistrainError("tensorboard is written to a folder: name it with --out FOLDER")
            _tensorboard(record, out)
            return
        write = _jsonl
        if to == "csv":
            write = _csv_of_steps if table == "steps" else _csv_of_logged
        if isinstance(out, Path):
            with open_replacement(out) as file:
                write(record, file)
        else:
            write(record, out or sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DistrainError(
            f"cannot write to {out or error.filename or 'stdout'}: {error.strerror}"
        ) from None


def _csv_of_steps(record: Record, file: IO[str]) -> None:
    writer = csv.writer(file)
    writer.writerow(STEPS.fields)
    for rank in record.keys(STEPS):
        writer.writerows(record.raw(STEPS, rank))


def _csv_of_logged(record: Record, file: IO[str]) -> None:
    writer = csv.writer(file)
    writer.writerow(LOGGED_HEADER)
    writer.writerows(_logged_rows(record))


def _logged_rows(record: Record) -> Iterator[tuple[Any, ...]]:
    """Yield the points of each curve, names one after another in the order of first use."""
    for name, ranks in record.logged().items():
        for rank, curve in sorted(ranks.items()):
            for row in record.samples(LOGGED, curve):
                mean = row.total / row.n if row.total is not None and row.n else None
                values = (mean, row.low, row.high, row.newest)
                yield (rank, name, row.time, row.step, row.n, *values)


def _jsonl(record: Record, file: IO[str]) -> None:
    pairs = [(series, key) for series in SERIES for key in record.keys(series)]
    curves = {
        curve: {"rank": rank, "name": name}
        for name, ranks in record.logged().items()
        for rank, curve in ranks.items()
    }
    chunk = max(16, ROWS_AT_ONCE // max(len(pairs), 1))
    sources = [
        _samples(record, series, key, chunk, curves.get(key, {}) if series is LOGGED else {})
        for series, key in pairs
    ]
    for _, found in heapq.merge(_events(record), *sources, key=lambda pair: pair[0]):
        file.write(msgspec.json.encode(found).decode() + "\n")


def _events(record: Record) -> Iterator[_TimedObject]:
    time = 0.0
    for _, event in record.events():
        time = getattr(event, "time", time)  # a Hello has none
        yield time, as_dict(event)


def _samples(
    record: Record, series: Series[Any], key: int, chunk: int, owner: dict[str, Any]
) -> Iterator[_TimedObject]:
    """Yield the rows of a key, each with the fields of its `owner`."""
    kind = "window" if series is STEPS else series.name
    for item in record.samples(series, key, chunk):
        yield item.time, {"type": kind, **owner, **msgspec.structs.asdict(item)}


def _tensorboard(record: Record, folder: Path) -> None:
    # This takes half a second, which other commands should not pay. Its SummaryWriter writes in a
    # thread, and waits forever for one that has ended because the disk is full.
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter
    from tensorboardX.summary import scalar

    if any(folder.glob("events.out.tfevents.*")):  # TensorBoard would draw every curve twice
        raise DistrainError(f"{folder} already contains TensorBoard's files; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.absolute() / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}"
    with _draft_of(path) as draft, contextlib.closing(RecordWriter(str(draft))) as file:

        def write(tag: str, value: float, step: int, at: float) -> None:
            event = Event(wall_time=at, step=step, summary=scalar(tag, value))
            file.write(event.SerializeToString())

        file.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        tags = _Tags()

        def add(tag: str, curve: Curve, column: str, steps: Iterable[float]) -> None:
            for step, at, value in zip(steps, curve["time"], curve[column], strict=True):
                if not isnan(value) and abs(step) < MOST_STEPS:
                    write(tag, value, int(step), at)
                    tags.taken.add(tag)

        ranks = record.curves(columns=[*RANK_TAGS, *RANK_COLUMNS], points=POINTS)
        curves = {"all": over_ranks(ranks.values())}
        curves |= {f"rank{rank}": curve for rank, curve in ranks.items()}
        for name, curve in curves.items():
            for column in RANK_TAGS:
                add(f"{column}/{name}", curve, column, curve["step"])
        for gpu, curve in record.curves(GPU, columns=GPU_TAGS, points=POINTS).items():
            seconds = [at - record.created for at in curve["time"]]
            for column in GPU_TAGS:
                add(f"gpu{gpu}/{column}", curve, column, seconds)
        evaluations = record.evaluations()
        metrics = dict.fromkeys(name for each in evaluations for name in each.metrics)
        metric_tags = {name: tags.choose(f"eval/{name}") for name in metrics}
        for evaluation in evaluations:
            for name, metric in evaluation.metrics.items():
                if (value := metric.value) is not None:
                    write(metric_tags[name], value, evaluation.step, evaluation.time)
        _add_logged(record, add, tags)


@contextlib.contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """Yield where to write what becomes the file `path` at the end of the block.

    TensorBoard would take half a file for all of it. What an export that was killed has left is
    overwritten by the next one. Raises DistrainError while another export writes there, and OSError
    where somebody has put a link or a pipe in its place.
    """
    draft = path.with_name(TENSORBOARD_DRAFT)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(draft, flags, 0o666), "r+b") as file:
        require_regular(os.fstat(file.fileno()))
        with contextlib.suppress(OSError):  # not every file system has locks
            if not lock_within(file.fileno(), 0):
                raise DistrainError(f"another export is writing to {path.parent}")
        try:
            file.truncate()
            yield Path(f"/dev/fd/{file.fileno()}")  # the name may lead elsewhere by now
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        draft.rename(path)


class _Tags:
    """Gives each curve tags of its own: TensorBoard draws the curves of one tag as one line."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def choose(self, name: str, endings: Sequence[str] = ("",)) -> str:
        """Return the tag of a name, numbered where it is taken with one of the endings."""
        cleaned = tag = _NOT_IN_TAGS.sub("_", name).lstrip("/") or "_"
        number = 1
        while not self.taken.isdisjoint(tags := [tag + ending for ending in endings]):
            number += 1
            tag = f"{cleaned}_{number}"
        self.taken.update(tags)
        return tag


def _add_logged(
    record: Record, add: Callable[[str, Curve, str, Iterable[float]], None], tags: _Tags
) -> None:
    """Add what a script has logged: a tag per name, of several ranks one for each and for all."""
    logged = record.logged()
    curves = sum(map(len, logged.values()))
    points = min(POINTS, max(1000, LOGGED_POINTS // max(curves, 1)))
    for name, ranks in logged.items():
        found = record.curves(LOGGED, ranks.values(), columns=LOGGED_COLUMNS, points=points)
        everything = logged_over_ranks(found.values())
        drawn = {"": everything}
        if len(ranks) > 1:
            each = {f"/rank{rank}": found[key] for rank, key in sorted(ranks.items())}
            drawn = {"/all": everything, **each}
        tag = tags.choose(name, [*drawn])
        for ending, curve in drawn.items():
            add(f"{tag}{ending}", curve, "value", curve["step"])
