"""Take a record elsewhere: CSV of windows, JSON lines of everything, TensorBoard event files."""

from __future__ import annotations

import csv
import heapq
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from math import isnan
from pathlib import Path
from typing import IO, Any, Literal, get_args

from runners.errors import DistrainError, nearest
from runners.events import as_dict
from runners.record import Record
from runners.rollup import Curve, Series
from runners.series import GPU, SERIES, STEPS

Format = Literal["csv", "jsonl", "tensorboard"]
Line = tuple[float, dict[str, Any]]

# TensorBoard itself shows 1,000 points of a scalar; shorter runs are exported whole.
POINTS = 10_000
RANK_TAGS = {"loss": "loss", "samples_per_s": "samples_per_s", "lr": "lr"}
GPU_TAGS = ("utilisation", "memory_used", "power", "temperature", "sm_clock", "memory_clock")


def export(record: Record, to: Format = "csv", out: Path | IO[str] | None = None) -> None:
    """Write a record to `out`: a file for csv and jsonl, a folder for tensorboard.

    Without `out`, csv and jsonl go to stdout. csv has one row per window, jsonl one object per
    line in order of time, each with its `type`; both stream. Raises DistrainError.
    """
    if to not in get_args(Format):
        raise DistrainError(f"cannot export to {to!r}{nearest(to, get_args(Format))}")
    try:
        if to == "tensorboard":
            if not isinstance(out, Path):
                raise DistrainError("tensorboard wants a folder to write to: add --out FOLDER")
            _tensorboard(record, out)
            return
        with ExitStack() as stack:
            file = out or sys.stdout
            if isinstance(file, Path):
                file = stack.enter_context(file.open("w", newline=""))
            (_csv if to == "csv" else _jsonl)(record, file)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DistrainError(f"cannot write to {error.filename or out}: {error.strerror}") from None


def _csv(record: Record, file: IO[str]) -> None:
    writer = csv.writer(file)
    writer.writerow(STEPS.fields)
    for rank in record.keys(STEPS):
        writer.writerows(record.raw(STEPS, rank))


def _jsonl(record: Record, file: IO[str]) -> None:
    sources = [_events(record)]
    for series in SERIES:
        sources += [_rows(record, series, key) for key in record.keys(series)]
    for _, line in heapq.merge(*sources, key=lambda line: line[0]):
        file.write(json.dumps(line) + "\n")


def _events(record: Record) -> Iterator[Line]:
    for _, time, event in record.timed_events():
        yield time, as_dict(event)


def _rows(record: Record, series: Series[Any], key: int) -> Iterator[Line]:
    kind = "window" if series is STEPS else series.name
    for row in record.raw(series, key):
        item = series.struct(row)
        yield item.time, {"type": kind, **{name: getattr(item, name) for name in series.fields}}
