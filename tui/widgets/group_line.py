"""The header line of a group of runs, and what is below the table for it."""

from __future__ import annotations

from rich.text import Text

from distrain.runners import formatting
from distrain.tui.data.run_groups import GroupRow
from distrain.tui.widgets.run_columns import column_title


def group_line(group: GroupRow, column: str) -> Text:
    """Return "▾ lr 0.1  4 runs  best top1 98.10 % (lr-0.1-b)  1 live"."""
    line = Text(" ▸ " if group.is_folded else " ▾ ", no_wrap=True, overflow="ellipsis")
    line.append(f"{column_title(column)} ", "dim").append(group.label, "bold")
    line.append(f"  {formatting.plural(len(group.rows), 'run')}")
    if group.best is not None:
        best = group.best
        value = formatting.metric(group.metric, best.value)
        line.append("  best ", "dim").append(value, "bold")
        line.append(f" ({best.name or best.short})", "dim")
    if group.live:
        line.append(f"  {group.live:,} live", "cyan")
    if group.failed:
        line.append(f"  {group.failed:,} failed", "red")
    return line
