"""What the columns of the runs table omit of the run under the cursor."""

from __future__ import annotations

import re

from rich.text import Text

from distrain.runners import formatting
from distrain.tui.data.run_rows import BENCH, RunRow
from distrain.tui.widgets.colours import STATUSES, UNKNOWN

_NAMED_RUN = re.compile(r"run \d{8}-\d{6}-[a-z0-9-]+ \(([^()]+)\)")


def reason_of(row: RunRow) -> str:
    """Return why a run ended or waits, with the names alone of other runs that have one."""
    return _NAMED_RUN.sub(r"\1", formatting.single_line(row.reason))


def details(row: RunRow | None, short: bool = False) -> Text:
    """Return why the run ended, its model and devices, its notes."""
    if row is None:
        return Text()
    dot, colour = STATUSES.get(row.current_status, UNKNOWN)
    status = Text(f" {dot} {row.current_status}", colour)
    if row.reason and (row.status != "completed" or row.kind == BENCH):
        status.append(f": {reason_of(row)}")
    if row.live and row.eta is not None:
        status.append(f", {formatting.duration(row.eta)} left")
    ranks = f"{row.strategy} ×{row.ranks}" if row.ranks else row.strategy
    what = f"{row.model} on {row.data}" if row.data else row.model
    where = ", ".join(row.devices[:4]) + (" …" if len(row.devices) > 4 else "")
    parts = [Text(part, "dim") for part in (row.id, ranks, what, where) if part]
    notes = Text(" ".join([*row.notes.split(), *(f"#{tag}" for tag in row.tags)]))
    if short and notes:
        parts.insert(0, notes)
    first = Text("  ", no_wrap=True, overflow="ellipsis").join([status, *parts])
    return first if short or not notes else first.append("\n ").append_text(notes)
