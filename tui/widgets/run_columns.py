"""The columns of the runs table, and the text of its header, rows and details."""

from __future__ import annotations

from rich.text import Text
from textual.color import Color

from distrain.runners import formatting
from distrain.runners.records import job_status
from distrain.tui import marks
from distrain.tui.data.run_rows import BENCH, RunRow
from distrain.tui.widgets.colours import FAILED_JOB, JOB_STATES, STATUSES, UNKNOWN, legible_style
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit, total_width

PREFIX = 6  # cells of "✓↥● ✔ "
NAME = 15  # least cells of the name
BAR = 5  # cells of the progress bar
# Cells that columns get of the remaining room, in this order; the last column takes the rest.
GROWING = (("name", 13), ("tags", 10), ("name", 6))


COLUMNS = (
    TableColumn("name", NAME, right=False),
    TableColumn("strategy", 12, 3, right=False),
    TableColumn("setup", 13, 5, right=False),
    TableColumn("model", 18, 7, right=False),
    TableColumn("progress", 11),
    TableColumn("samples/s", 9, 2),
    TableColumn("metric", 12),
    TableColumn("duration", 11, 4),
    TableColumn("age", 6),
    TableColumn("tags", 8, 6, right=False),
    TableColumn("notes", 16, 8, right=False),
)
TITLES = {"progress": "steps"}


def columns(width: int) -> list[TableColumn]:
    """Return the columns that fit, widened to fill the table."""
    found = columns_that_fit(COLUMNS, width - PREFIX + 1)
    left = max(width - PREFIX + 1 - total_width(found), 0)
    widths = {column.name: column.width for column in found}
    for name, most in (*GROWING, (found[-1].name, left)):
        if name in widths:
            widths[name] += min(left, most)
            left -= min(left, most)
    return [column._replace(width=widths[column.name]) for column in found]


def column_at(x: int, width: int) -> str:
    """Return the name of the column at a cell, "status" for the marks before the first column."""
    if x < PREFIX:
        return "status"
    end = PREFIX
    for column in columns(width):
        end += column.width + 1
        if x < end:
            return column.name
    return ""


def header(by: str, descending: bool, width: int) -> Text:
    """Return the column titles with an arrow at the column that sorts the rows."""
    arrow = "↓" if descending else "↑"
    line = Text(f"{arrow if by == 'status' else ''}".rjust(PREFIX - 1) + " ", no_wrap=True)
    for column in columns(width):
        text = TITLES.get(column.name, column.name)
        if column.name == by:
            text = f"{arrow}{text}" if column.right else f"{text}{arrow}"
        line.append(align(Text(text), column)).append(" ")
    return line


def row_line(row: RunRow, width: int, marked: bool, background: Color) -> Text:
    """Return the row of a run, legible on the background."""
    mark = marks.run_mark(row.id)
    dot, colour = STATUSES.get(row.current_status, UNKNOWN)
    line = Text(no_wrap=True)
    line.append("✓" if marked else " ", "bold").append("↥" if row.pinned else " ", "bold")
    line.append(f"{mark.shape} ", legible_style(mark.colour, background)).append(f"{dot} ", colour)
    cells = _cells(row)
    for column in columns(width):
        line.append_text(align(cells[column.name], column)).append(" ")
    return line


def _cells(row: RunRow) -> dict[str, Text]:
    name = Text(row.name, "bold" if row.live else "") if row.name else Text(row.short, "italic")
    ranks = f" ×{row.ranks}" if row.ranks else ""
    return {
        "name": name,
        "strategy": Text.assemble(row.strategy, (ranks, "dim")),
        "setup": Text(f"{row.launcher} {row.precision}".strip(), "dim"),
        "progress": _progress(row),
        "samples/s": Text(formatting.round_rate(row.samples_per_s)),
        "metric": _metric(row),
        "duration": Text(formatting.duration(row.seconds), "dim"),
        "age": Text(formatting.age(row.created), "dim"),
        "model": Text(f"{row.model} on {row.data}" if row.model else "", "dim"),
        "notes": Text(" ".join(row.notes.split()), "dim"),
        "tags": Text(" ".join(f"#{tag}" for tag in row.tags), "cyan"),
    }


def _progress(row: RunRow) -> Text:
    if row.kind == BENCH:
        return _rounds(row)
    if not row.live:
        return Text(formatting.count(row.step))
    if row.job not in ("", job_status.RUNNING):
        return Text(row.job, JOB_STATES.get(row.job, FAILED_JOB))
    if row.fraction is None or row.stalled:
        return Text(row.current_status, STATUSES.get(row.current_status, UNKNOWN)[1])
    filled = round(BAR * row.fraction)
    bar = Text("━" * filled, STATUSES.get(row.current_status, UNKNOWN)[1]).append(
        "─" * (BAR - filled), "dim"
    )
    return bar.append(f"{100 * row.fraction:.0f} %".rjust(6))


def _rounds(row: RunRow) -> Text:
    if row.live:
        return Text(f"round {row.step}/{row.most}", STATUSES.get(row.current_status, UNKNOWN)[1])
    return Text(formatting.plural(row.step or 0, "round"))


def _metric(row: RunRow) -> Text:
    value = formatting.metric_value(row.metric, row.value) if row.metric else formatting.MISSING
    name = f"{row.metric} " if row.metric and len(row.metric) + len(value) < 12 else ""
    return Text.assemble((name, "dim"), value)


def details(row: RunRow | None, short: bool = False) -> Text:
    """Return what the columns omit: why the run ended, its model and devices, its notes."""
    if row is None:
        return Text()
    dot, colour = STATUSES.get(row.current_status, UNKNOWN)
    status = Text(f" {dot} {row.current_status}", colour)
    if row.reason and (row.status != "completed" or row.kind == BENCH):
        status.append(f": {formatting.single_line(row.reason)}")
    if row.live and row.eta is not None:
        status.append(f", {formatting.duration(row.eta)} left")
    what = f"{row.model} on {row.data}" if row.model else ""
    where = ", ".join(row.devices[:4]) + (" …" if len(row.devices) > 4 else "")
    parts = [Text(part, "dim") for part in (row.id, what, where) if part]
    notes = Text(" ".join([*row.notes.split(), *(f"#{tag}" for tag in row.tags)]))
    if short and notes:
        parts.insert(0, notes)
    first = Text("  ", no_wrap=True, overflow="ellipsis").join([status, *parts])
    return first if short or not notes else first.append("\n ").append_text(notes)
