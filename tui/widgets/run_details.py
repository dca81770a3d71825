"""What the columns of the runs table omit of the run under the cursor."""

from __future__ import annotations

from rich.text import Text

from distrain.runners import formatting
from distrain.tui.data.run_rows import BENCH, RunRow
from distrain.tui.widgets.colours import STATUSES, UNKNOWN


def details(row: RunRow | None, short: bool = False) -> Text:
    """Return why the run ended, its model and devices, its notes."""
    if row is None:
        return Text()
    dot, colour = STATUSES.get(row.current_status, UNKNOWN)
    status = Text(f" {dot} {row.current_status}", colour)
    if row.reason and (row.status != "completed" or row.kind == BENCH):
        status.append(f": {formatting.single_line(row.reason)}")
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
