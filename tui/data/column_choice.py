"""Which columns the table of runs has: those that a person chose, or those that tell runs apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import log

from distrain.runners.records.flat_config import FlatConfig, Setting
from distrain.tui.data.run_rows import CONFIG, METRIC, RunRow, known_keys

# Columns of every table, from left to right; the keys that differ follow the name.
ALWAYS = ("name", "progress", "samples/s", "metric", "duration", "age")
# Columns that are left out where all rows have the same.
IF_DIFFERENT = ("strategy", "setup", "model", "group", "host", "tags", "notes")
OFFERED = ("name", "strategy", "setup", "model", *ALWAYS[1:], "group", "host", "tags", "notes")
MOST_SETTINGS = 6  # of the keys that differ
# Other columns show these, or they say nothing about a training.
_SHOWN_ELSEWHERE = frozenset(
    (
        "description",
        "code_dir",
        "strategy",
        "launcher",
        "precision",
        "devices",
        "model.name",
        "data.name",
        "script.path",
        "script.module",
        "script.cwd",
    )
)
_LAST = ("train.seed",)  # repeats of one config differ in it


def automatic_columns(rows: Sequence[RunRow]) -> list[str]:
    """Return the columns that tell these rows apart, from left to right."""
    differing = {name for name in IF_DIFFERENT if _differs(name, rows)}
    settings = [CONFIG + key for key in differing_settings([row.config for row in rows])]
    order = ("name", "strategy", *settings[:MOST_SETTINGS], "setup", "model", *ALWAYS[1:])
    order += ("group", "host", "tags", "notes")
    wanted = {*ALWAYS, *settings, *differing}
    return [name for name in order if name in wanted]


def _differs(name: str, rows: Sequence[RunRow]) -> bool:
    """Return whether a column has more than one value; of one row, whether it has any."""
    values = {_VALUES[name](row) for row in rows}
    return len(values) > 1 or (len(rows) < 2 and any(values))


_VALUES: dict[str, Callable[[RunRow], object]] = {
    "strategy": lambda row: (row.strategy, row.ranks),
    "setup": lambda row: (row.launcher, row.precision),
    "model": lambda row: (row.model, row.data),
    "group": lambda row: row.group,
    "host": lambda row: row.hosts,
    "tags": lambda row: row.tags,
    "notes": lambda row: row.notes,
}


def differing_settings(configs: Iterable[FlatConfig]) -> list[str]:
    """Return the config keys that differ between runs, the most informative first.

    That is the entropy of the values, times the share of the runs that have the key. Of keys whose
    values change together only the first is returned.
    """
    by_keys: dict[int, list[FlatConfig]] = {}
    for config in configs:
        if config:
            by_keys.setdefault(id(config.positions), []).append(config)
    counts: dict[str, Counter[Setting]] = {}
    for alike in by_keys.values():
        columns = zip(*(config.values_in_order for config in alike), strict=True)
        for key, column in zip(alike[0].positions, columns, strict=True):
            counts.setdefault(key, Counter()).update(column)
    known = [*chain(*by_keys.values())]
    informative = [
        key for key, found in counts.items() if len(found) > 1 and key not in _SHOWN_ELSEWHERE
    ]
    informative.sort(key=lambda key: (key in _LAST, -_information(counts[key], len(known)), key))
    found: list[str] = []
    partitions: set[tuple[int, ...]] = set()
    for key in informative[: 4 * MOST_SETTINGS]:
        partition = _partition([config.get(key) for config in known])
        if partition not in partitions:
            partitions.add(partition)
            found.append(key)
    return found


def _information(counts: Counter[Setting], runs: int) -> float:
    total = sum(counts.values())
    entropy = -sum(count / total * log(count / total) for count in counts.values())
    return entropy * total / runs


def _partition(values: Sequence[Setting | None]) -> tuple[int, ...]:
    """Return which of the values are equal, whatever they are."""
    numbers: dict[Setting | None, int] = {}
    return tuple(numbers.setdefault(value, len(numbers)) for value in values)


def offered_columns(rows: Iterable[RunRow]) -> list[str]:
    """Return every column that a person may choose: the usual ones, metrics, then config keys."""
    known = known_keys(rows)
    return [
        *OFFERED,
        *(METRIC + name for name in sorted(known.metrics)),
        *(CONFIG + key for key in sorted(known.settings) if key not in _SHOWN_ELSEWHERE),
    ]


def grouping_keys(rows: Sequence[RunRow]) -> list[str]:
    """Return the columns by which rows can be grouped, likely ones first."""
    differing = [CONFIG + key for key in differing_settings([row.config for row in rows])]
    usual = ["group", "strategy", "model", "tags", "status", "host", "setup"]
    others = [name for name in offered_columns(rows) if name.startswith(CONFIG)]
    return [*dict.fromkeys([*usual, *differing, *others])]
