"""The keys by which lists of runs are filtered, sorted and grouped.

A key is a fact of every run (FACTS), a metric of its last evaluation, or a key of its config.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from distrain.models.errors import nearest
from distrain.runners.config.toml import flatten
from distrain.runners.errors import ConfigError

Value: TypeAlias = str | int | float | bool | tuple[str, ...] | None
Kind = Literal["fact", "metric", "config"]

STATUSES = (
    "queued",
    "starting",
    "running",
    "stalled",
    "recovering",
    "stopping",
    "failed",
    "stopped",
    "completed",
)
KINDS = ("run", "bench")
# What is known of every run, with what kind of value it is.
TEXT, SECONDS, NUMBER = "text", "seconds", "number"
FACTS: Mapping[str, str] = {
    "status": TEXT,
    "tag": TEXT,
    "name": TEXT,
    "note": TEXT,
    "group": TEXT,
    "host": TEXT,
    "kind": TEXT,
    "id": TEXT,
    "age": SECONDS,
    "duration": SECONDS,
    "steps": NUMBER,
    "ranks": NUMBER,
}
ALIASES = {"tags": "tag", "notes": "note"}


@cache
def schema_keys() -> frozenset[str]:
    """Return the keys that any config may have."""
    from distrain.runners.config.schema import RunConfig  # not needed to list runs

    return frozenset(flatten(msgspec.to_builtins(RunConfig())))


class RunKey(NamedTuple):
    """A key, as `find_key` returns it for what a person types."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return self.name


class ListedRun(Protocol):
    """A run or bench in a list."""

    @property
    def search_text(self) -> str:
        """Return the text that words are searched in, in lower case."""

    def value_of(self, key: RunKey) -> Value:
        """Return the value of a key, or None where the run has none."""


class KnownKeys(NamedTuple):
    """The keys of the metrics and configs of some runs, besides FACTS and SETTINGS."""

    metrics: Collection[str] = ()
    settings: Collection[str] = ()

    def find(self, word: str) -> RunKey:
        """Return the key that a word names: in full, or by the last part of a config key.

        Raises ConfigError where there is none or more than one.
        """
        name = ALIASES.get(word, word)
        if name in FACTS:
            return RunKey("fact", name)
        if name in self.metrics:
            return RunKey("metric", name)
        settings = self._all_settings()
        if name in settings:
            return RunKey("config", name)
        found = sorted(key for key in settings if key.endswith(f".{name}"))
        if len(found) == 1:
            return RunKey("config", found[0])
        if found:
            raise ConfigError(f"{word} may be {' or '.join(found)}: write one of them in full")
        hint = nearest(word, self.words()) or "; put text that has an operator in quotes"
        raise ConfigError(f"no run has the key {word}{hint}")

    def words(self) -> list[str]:
        """Return what `find` accepts, with one word for each key: facts, metrics, then settings."""
        return [*FACTS, *sorted(self.metrics), *sorted(self.short_names().values())]

    def short_names(self) -> dict[str, str]:
        """Return the shortest word that `find` accepts for each key of a config."""
        settings = self._all_settings()
        lasts = Counter(key.rpartition(".")[2] for key in settings)
        taken = {*FACTS, *ALIASES, *self.metrics, *(key for key in settings if "." not in key)}
        return {
            key: last if lasts[last := key.rpartition(".")[2]] == 1 and last not in taken else key
            for key in settings
        }

    def _all_settings(self) -> set[str]:
        return {*schema_keys(), *self.settings}


def sort_value(value: Value) -> tuple[int, float | str] | None:
    """Return what values of one key are sorted by: numbers before texts; None without a value."""
    if value is None or value in ("", ()):
        return None
    if isinstance(value, int | float):
        return (0, float(value)) if value == value else None  # NaN has no order
    return (1, (", ".join(value) if isinstance(value, tuple) else value).casefold())
