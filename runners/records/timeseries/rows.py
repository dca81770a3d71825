"""Reading the rows of a series: counts, raw rows, the latest of each key, totals.

All queries are range scans of primary keys, and their number does not depend on the number of
keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from distrain.runners.protocol.events import NEVER
from distrain.runners.records.timeseries.bounds import find_rows_between
from distrain.runners.records.timeseries.levels import combine, highest_level, split_by_level
from distrain.runners.records.timeseries.rollup import AGGREGATE_SQL, Row, Series, T

# "seq % FACTOR" finds the last row of a roll-up; a piece may end anywhere.
_MERGE_SQL = {**AGGREGATE_SQL, "last": "max(CASE WHEN seq = last - 1 THEN {0} END)"}


class Piece(NamedTuple):
    """Rows of one level and key: first ≤ seq < last."""

    level: int
    key: int
    first: int
    last: int


def count_rows(db: sqlite3.Connection, series: Series[Any]) -> dict[int, int]:
    """Return the number of raw rows of each key that has any, in order of keys."""
    query = (
        f"WITH RECURSIVE {_every_key(series)} "
        f"SELECT value, ({_last_seq(series)}) + 1 FROM found WHERE value NOTNULL"
    )
    rows: list[tuple[int, int]] = db.execute(query).fetchall()
    for key_and_count in rows:
        _check_count(series, *key_and_count)
    return dict(rows)


def _every_key(series: Series[Any]) -> str:
    """Return the SQL of a table `found` with each key that has rows, and NULL at the end."""
    # A recursive query jumps from key to key; SELECT DISTINCT would read the whole table.
    key = series.key
    name = series.name
    next_key = f"SELECT min({key}) FROM {name} WHERE {key} > found.value"
    return (
        f"found(value) AS (SELECT min({key}) FROM {name} UNION ALL "
        f"SELECT ({next_key}) FROM found WHERE value NOTNULL)"
    )


def _last_seq(series: Series[Any]) -> str:
    return f"SELECT max(seq) FROM {series.name} WHERE {series.key} = found.value"


def count_rows_of_key(db: sqlite3.Connection, series: Series[Any], key: int) -> int:
    """Return the number of raw rows of one key."""
    query = f"SELECT max(seq) FROM {series.name} WHERE {series.key} = ?"
    last: int | None = db.execute(query, (key,)).fetchone()[0]
    if last is None:
        return 0
    _check_count(series, key, last + 1 if isinstance(last, int) else last)
    return last + 1


def _check_count(series: Series[Any], key: Any, count: Any) -> None:
    """Raise sqlite3.DataError unless both can be the key and the number of its rows."""
    for value in (key, count):
        if not isinstance(value, int) or not 0 <= value <= NEVER:
            raise sqlite3.DataError(f"{series.name} has a row with a key that is no number of it")


def read_raw(
    db: sqlite3.Connection, series: Series[Any], key: int, after: int, chunk: int
) -> tuple[list[Row], int]:
    """Return the next raw rows of a key, those with `seq` > `after`, and the `seq` of the last.

    At most `chunk` of them, values in the order of `series.fields`: a slow consumer never holds up
    the writer's checkpoints.
    """
    query = (
        f"SELECT {', '.join(series.fields)}, seq FROM {series.name} "
        f"WHERE {series.key} = ? AND seq > ? ORDER BY seq LIMIT ?"
    )
    rows = db.execute(query, (key, after, chunk)).fetchall()
    found: list[Row] = [row[:-1] for row in rows]
    series.check_raw(found)
    return found, rows[-1][-1] if rows else after


def read_latest(
    db: sqlite3.Connection, series: Series[T], keys: Iterable[int] | None = None
) -> dict[int, T]:
    """Return the last struct of each key that has rows; `keys` defaults to all."""
    found = _every_key(series)
    if keys is not None:
        values = ", ".join(f"({key})" for key in keys)
        if not values:
            return {}
        found = f"found(value) AS (VALUES {values})"
    # CROSS JOIN keeps the order: key by key, each at the end of the table's primary key.
    query = (
        f"WITH RECURSIVE {found} SELECT {', '.join(series.fields)}, seq FROM found "
        f"CROSS JOIN {series.name} WHERE {series.key} = value AND seq = ({_last_seq(series)})"
    )
    latest = {}
    for *row, seq in db.execute(query).fetchall():
        _check_count(series, row[0], seq)
        latest[row[0]] = series.struct(row)
    return latest


def read_totals(
    db: sqlite3.Connection,
    series: Series[Any],
    columns: Iterable[str] | None = None,
    since: Mapping[int, float] | None = None,
) -> dict[int, dict[str, Any]]:
    """Return stored columns (by default all) aggregated over the rows of each key.

    `since` are the earliest times of the rows by key; keys without such rows are left out.
    Exact, in O(log n); None where all values are missing.
    """
    names = list(series.columns if columns is None else columns)
    counts = count_rows(db, series)
    ranges = {key: (0, count) for key, count in counts.items()}
    if since is not None:
        counts = {key: count for key, count in counts.items() if key in since}
        found = find_rows_between(db, series, counts, "time", since, None)
        ranges = {key: (low, high) for key, (low, high) in found.items() if low < high}
    rows = merge_ranges(db, series, names, [(key, *bounds) for key, bounds in ranges.items()])
    merged = [values for _, *values in rows]
    by_name: dict[str, Row] = dict(zip(names, zip(*merged, strict=True), strict=False))
    series.drop_overflows(by_name)
    totals = {
        key: dict(zip(names, values, strict=True))
        for key, values in zip(ranges, zip(*by_name.values(), strict=True), strict=True)
    }
    for total in totals.values():
        series.check_merged(total)
    return totals


def read_pieces(
    db: sqlite3.Connection,
    series: Series[Any],
    names: list[str],
    pieces: Sequence[Piece],
    merge: bool = False,
) -> Iterator[list[Row]]:
    """Return the rows of each piece, in order, each row with the piece's number in front.

    With `merge` the rows of a piece are aggregated into one. Takes one query for each level.
    """
    found: list[list[Row]] = [[] for _ in pieces]
    for level in sorted({piece.level for piece in pieces}):
        values, table = series.source(level, names)
        if merge:
            templates = [_MERGE_SQL[series.columns[name].how] for name in names]
            values = [sql.format(value) for sql, value in zip(templates, values, strict=True)]
        bounds = ", ".join(
            f"({number}, {piece.key}, {piece.first}, {piece.last})"
            for number, piece in enumerate(pieces)
            if piece.level == level
        )
        # CROSS JOIN keeps the order: piece by piece, each along the table's primary key.
        query = (
            f"WITH piece(number, wanted_key, first, last) AS (VALUES {bounds}) "
            f"SELECT number, {', '.join(values)} FROM piece CROSS JOIN {table} "
            f"{series.key} = wanted_key AND seq >= first AND seq < last"
        )
        if merge:
            query += " GROUP BY number"
        rows = db.execute(query, (level,) if level else ()).fetchall()
        for number, rows_of_piece in groupby(rows, itemgetter(0)):
            found[number] = list(rows_of_piece)
    return iter(found)


def merge_ranges(
    db: sqlite3.Connection,
    series: Series[Any],
    names: list[str],
    ranges: Sequence[tuple[int, int, int]],
) -> Iterator[Row]:
    """Yield one aggregated row for each range (key, low, high) of raw rows low ≤ seq < high.

    Each is made of as few stored rows as possible. As in `read_pieces`, a number comes first.
    """
    split = [
        [Piece(level, key, first, last) for level, first, last in _split(low, high)]
        for key, low, high in ranges
    ]
    merged = read_pieces(db, series, names, [*chain.from_iterable(split)], merge=True)
    hows = [series.columns[name].how for name in names]
    for pieces in split:
        rows = chain.from_iterable(islice(merged, len(pieces)))
        columns = list(zip(*rows, strict=True))[1:] or [()] * len(names)
        try:
            yield (0, *map(combine, hows, columns))
        except TypeError as error:
            raise sqlite3.DataError(f"a row of {series.name}: {error}") from None


def _split(low: int, high: int) -> Iterator[tuple[int, int, int]]:
    return split_by_level(low, high, highest_level(high - low))
