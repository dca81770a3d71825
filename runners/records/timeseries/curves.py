"""Curves for plotting: a bounded number of points of a series, however long it is."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Mapping
from math import inf, isfinite, nan
from operator import truediv
from typing import Any, TypedDict, Unpack

from distrain.runners.records.timeseries.bounds import Limit, find_rows_between
from distrain.runners.records.timeseries.levels import FACTOR, split_into_spans
from distrain.runners.records.timeseries.rollup import Row, Series
from distrain.runners.records.timeseries.rows import (
    Piece,
    count_rows,
    count_rows_of_key,
    merge_ranges,
    read_pieces,
)


class Curve:
    """Columns of equal length for plotting, NaN where a value is missing.

    `stride` is how many raw rows a point summarises; the first and last may summarise fewer.
    """

    __slots__ = ("columns", "stride")

    def __init__(self, columns: dict[str, array[float]], stride: int = 1) -> None:
        self.columns = columns
        self.stride = stride

    def __getitem__(self, name: str) -> array[float]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


class CurveQuery(TypedDict, total=False):
    """The keyword arguments of `read_curves`."""

    columns: Iterable[str] | None
    points: int
    axis: str | None
    start: Limit
    end: Limit


def read_curve(
    db: sqlite3.Connection, series: Series[Any], key: int, **query: Unpack[CurveQuery]
) -> Curve:
    """Return one curve of `read_curves`; it has no points where the key has no rows."""
    return read_curves(db, series, [key], **query)[key]


def read_curves(
    db: sqlite3.Connection,
    series: Series[Any],
    keys: Iterable[int] | None = None,
    *,
    columns: Iterable[str] | None = None,
    points: int = 2000,
    axis: str | None = None,
    start: Limit = None,
    end: Limit = None,
) -> dict[int, Curve]:
    """Return at most `points` points of each key over rows with start ≤ axis ≤ end.

    `keys` and `columns` default to all, `axis` to the first of the series' axes. Limits may differ
    by key; keys that they do not have are left out, because a live run may get new ones. The finest
    level that fits is taken, so there are more than `points` / 8 points where there are as many
    rows. Rows at an edge that fill no roll-up make one point: sums over the curve equal sums over
    the raw rows. The number of queries does not depend on the number of keys.
    """
    wanted = list(dict.fromkeys([*series.axes, *(series.names if columns is None else columns)]))
    stored = list(dict.fromkeys(part for name in wanted for part in series.stored_parts(name)))
    if keys is None:
        counts = count_rows(db, series)
        for limits in (start, end):
            if isinstance(limits, Mapping):
                counts = {key: count for key, count in counts.items() if key in limits}
    else:
        counts = {key: count_rows_of_key(db, series, key) for key in keys}
    ranges = find_rows_between(db, series, counts, axis or series.axes[0], start, end)
    split = {key: split_into_spans(*bounds, max(points, 2)) for key, bounds in ranges.items()}
    spans = [(key, level, span) for key, (level, parts) in split.items() for span in parts]
    pieces = [
        Piece(level, key, span.first, span.last) for key, level, span in spans if span.is_stored
    ]
    edges = [(key, span.first, span.last) for key, _, span in spans if not span.is_stored]
    stored_rows = read_pieces(db, series, stored, pieces)
    edge_rows = merge_ranges(db, series, stored, edges)
    rows: dict[int, list[Row]] = {key: [] for key in split}
    for key, _, span in spans:
        if span.is_stored:
            rows[key] += next(stored_rows)
        else:
            rows[key].append(next(edge_rows))
    return {
        key: _make_curve(series, wanted, stored, rows[key], FACTOR**level)
        for key, (level, _) in split.items()
    }


def _make_curve(
    series: Series[Any], wanted: list[str], stored: list[str], rows: list[Row], stride: int
) -> Curve:
    if not rows:
        return Curve({name: array("d") for name in wanted}, stride)
    _, *columns = zip(*rows, strict=True)  # the first are the numbers of the pieces
    data: dict[str, Row] = dict(zip(stored, columns, strict=True))
    series.drop_overflows(data)
    parts = {name: [data[part] for part in series.stored_parts(name)] for name in wanted}
    try:
        curve = Curve({name: _to_array(*parts[name]) for name in wanted}, stride)
    except TypeError as error:
        raise sqlite3.DataError(f"a row of {series.name}: {error}") from None
    for name, values in curve.columns.items():
        if isfinite(sum(values)):
            continue
        if name in series.required or inf in values or -inf in values:
            raise sqlite3.DataError(f"a row of {series.name} has no valid {name}")
    return curve


def _to_array(values: Row, divisors: Row | None = None) -> array[float]:
    try:
        if divisors is None:
            return array("d", values)
        return array("d", map(truediv, values, divisors))
    except (TypeError, ZeroDivisionError):  # a value is missing, which is rare
        return array("d", map(_divide, values, divisors or [1] * len(values)))


def _divide(numerator: float | None, denominator: float | None) -> float:
    return numerator / denominator if numerator is not None and denominator else nan
