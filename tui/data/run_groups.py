"""Rows of the runs table in groups that have the same value of a key."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from distrain.runners import formatting
from distrain.runners.records.run_ids import short_id
from distrain.tui.data.run_rows import RunRow, column_key, column_value


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a group: its value, and the best of its runs by `metric`, if that is known."""

    id: str
    label: str
    rows: tuple[RunRow, ...]
    is_folded: bool = False
    metric: str = ""
    best: RunRow | None = None

    @property
    def column(self) -> str:
        """Return the column by whose values the runs are grouped."""
        return self.id.partition("\0")[0]

    @property
    def live(self) -> int:
        return sum(row.live for row in self.rows)

    @property
    def failed(self) -> int:
        return sum(row.status == "failed" for row in self.rows)


TableRow = RunRow | GroupRow


def group_rows(rows: Sequence[RunRow], column: str, folded: Collection[str]) -> list[TableRow]:
    """Return sorted rows in groups, each after a header; groups in the order of their first rows.

    `folded` are the ids of groups whose runs are not listed. Runs without a value are last.
    """
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(_label(row, column), []).append(row)
    found: list[TableRow] = []
    for label in sorted(groups, key=lambda label: not label):
        header = _header(column, label, groups[label], folded)
        found.append(header)
        if not header.is_folded:
            found += header.rows
    return found


def _header(column: str, label: str, rows: Sequence[RunRow], folded: Collection[str]) -> GroupRow:
    id = f"{column}\0{label}"  # no run has such an id
    metric, best = best_run(rows)
    return GroupRow(
        id=id,
        label=label or formatting.MISSING,
        rows=tuple(rows),
        is_folded=id in folded,
        metric=metric,
        best=best,
    )


def best_run(rows: Sequence[RunRow]) -> tuple[str, RunRow | None]:
    """Return the main metric of some runs, and the run that is best by it; None if unknown."""
    metrics = {row.metric for row in rows if row.metric}
    metric = metrics.pop() if len(metrics) == 1 else ""
    direction = formatting.best_is(metric)
    found = [row for row in rows if row.metric == metric and row.value is not None]
    found = [row for row in found if row.value == row.value]  # without NaN
    if direction is None or not found:
        return metric, None
    choose = max if direction == "max" else min
    return metric, choose(found, key=lambda row: row.value or 0.0)


def _label(row: RunRow, column: str) -> str:
    """Return the text of a row's value in a column; empty where it has none."""
    if key := column_key(column):
        value = row.value_of(key)
        text = formatting.setting(value)
        return "" if text == formatting.MISSING else text
    match column:
        case "strategy":
            return f"{row.strategy} ×{row.ranks}" if row.ranks else row.strategy
        case "model":
            return f"{row.model} on {row.data}" if row.data else row.model
        case "status":
            return row.current_status
        case "group":
            return short_id(row.group)
        case "tags" | "host":
            return ", ".join(row.tags if column == "tags" else row.hosts)
    return str(column_value(row, column) or "")
