"""Choose runs and benches of the runs folder by a filter expression."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrain.runners.analysis.run_filter import parse_filter
from distrain.runners.analysis.run_keys import KnownKeys, RunKey, Value
from distrain.runners.records.flat_config import NO_CONFIG, FlatConfig, read_flat_config

Row = dict[str, Any]  # of `distrain runs --json`


class _ListedRow:
    """A row of `distrain runs` with its config, as filters read it."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.metrics = row.get("eval") or {}
        is_run = row["kind"] == "run"
        self.config: FlatConfig = read_flat_config(Path(row["dir"])) if is_run else NO_CONFIG

    @property
    def search_text(self) -> str:
        row = self.row
        texts = (row.get("run_id") or row["bench_id"], row["name"], row["notes"], row["status"])
        settings = (str(self.config.get(key, "")) for key in _SEARCHED)
        return " ".join((*texts, *row["tags"], *settings)).casefold()

    def value_of(self, key: RunKey) -> Value:
        if key.kind == "metric":
            return self.metrics.get(key.name)
        if key.kind == "config":
            return self.config.get(key.name)
        return _facts(self.row)[key.name]


_SEARCHED = ("strategy", "launcher", "precision", "model.name", "data.name", "script.path")


def current_status(row: Row) -> str:
    """Return the status of a run or bench, or how a live run is doing: "stalled", "recovering"."""
    if row.get("stall") and row["status"] != "stopping":
        return "stalled"
    return "recovering" if row.get("recovering") else str(row["status"])


def _facts(row: Row) -> dict[str, Value]:
    return {
        "status": current_status(row),
        "tag": tuple(row["tags"]),
        "name": row["name"],
        "note": row["notes"],
        "group": row.get("group") or None,
        "host": tuple(row.get("hosts") or ()),
        "kind": row["kind"],
        "id": row.get("run_id") or row["bench_id"],
        "age": time.time() - row["created"],
        "duration": row["duration_s"],
        "steps": row.get("steps", row.get("rounds")),
        "ranks": row.get("world_size"),
    }


def select_rows(rows: Sequence[Row], expression: str) -> list[Row]:
    """Return the rows that match a filter expression, in their order.

    Raises ConfigError where the expression is not valid.
    """
    listed = [_ListedRow(row) for row in rows]
    keys = KnownKeys(
        metrics={name for each in listed for name in each.metrics if name != "samples"},
        settings={key for each in listed for key in each.config},
    )
    return [each.row for each in parse_filter(expression, keys).select(listed)]
