"""Which rows of a series lie between two values of an axis, e.g. two steps or two times."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Literal

from distrain.runners.records.timeseries.rollup import Series

Limit = float | Mapping[int, float] | None
"""A value of the axis for all keys, or one for each key; None is no limit."""

NEAR = 512  # rows at the end of a curve in which a limit is looked for first
FARTHEST = 1e300  # replaces infinite limits: SQL has no infinity


def find_rows_between(
    db: sqlite3.Connection,
    series: Series[Any],
    counts: dict[int, int],
    axis: str,
    start: Limit,
    end: Limit,
) -> dict[int, tuple[int, int]]:
    """Return for each key of `counts` the range low ≤ seq < high with start ≤ axis ≤ end.

    `counts` are the numbers of raw rows. An empty range has low = high.
    """
    low = dict.fromkeys(counts, 0)
    high = counts
    if start is not None:
        low = _find_first(db, series, counts, axis, start, "<")
    if end is not None:
        high = _find_first(db, series, counts, axis, end, "<=")
    return {key: (low[key], max(low[key], high[key])) for key in counts}


def _find_first(
    db: sqlite3.Connection,
    series: Series[Any],
    counts: dict[int, int],
    axis: str,
    limit: float | Mapping[int, float],
    below: Literal["<", "<="],
) -> dict[int, int]:
    """Return the first seq of each key whose value is not `below` the limit."""
    limits = limit if isinstance(limit, Mapping) else dict.fromkeys(counts, limit)
    near = {key: (max(0, count - NEAR), count) for key, count in counts.items()}
    edges = {}
    for key, seq in _find_last_below(db, series, axis, limits, below, near).items():
        edges[key] = (0, near[key][0]) if seq is None else (seq + 1, seq + 1)
    # Limits further back are found by bisection, in all keys with one query per round.
    while middles := {key: (low + high) // 2 for key, (low, high) in edges.items() if low < high}:
        single_rows = {key: (middle, middle + 1) for key, middle in middles.items()}
        for key, seq in _find_last_below(db, series, axis, limits, below, single_rows).items():
            low, high = edges[key]
            edges[key] = (low, middles[key]) if seq is None else (seq + 1, high)
    return {key: low for key, (low, _) in edges.items()}


def _find_last_below(
    db: sqlite3.Connection,
    series: Series[Any],
    axis: str,
    limits: Mapping[int, float],
    below: Literal["<", "<="],
    ranges: Mapping[int, tuple[int, int]],
) -> dict[int, int | None]:
    """Return the last seq in a range of each key whose value is `below` the limit, or None."""
    values = ", ".join(
        f"({key}, {low}, {high}, {min(max(limits[key], -FARTHEST), FARTHEST)!r})"
        for key, (low, high) in ranges.items()
    )
    if not values:
        return {}
    # Qualified, because a series may have columns of these names.
    last = (
        f"SELECT seq FROM {series.name} WHERE {series.key} = range.key AND seq >= range.low "
        f"AND seq < range.high AND {axis} {below} range.edge ORDER BY seq DESC LIMIT 1"
    )
    query = (
        f"WITH range(key, low, high, edge) AS (VALUES {values}) "
        f"SELECT range.key, ({last}) FROM range"
    )
    return dict(db.execute(query).fetchall())
