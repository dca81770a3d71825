"""The table of runs line by line: which columns fit, and what each tells of a run."""

from __future__ import annotations

from rich.text import Text
from textual.color import Color

from runners import jobs, words
from tui import marks
from tui.data.rows import BENCH, Row
from tui.widgets.columns import Column, aligned, fitting, taken
from tui.widgets.inks import STATUSES, UNKNOWN, legible

PREFIX = 6  # ✓↥● ✔, and a gap
NAME, BAR = 15, 5
GROWING = (("name", 13), ("tags", 10), ("name", 6))  # by how much, before the last one takes all


COLUMNS = (
    Column("name", NAME, right=False),
    Column("strategy", 12, 3, right=False),
    Column("how", 13, 5, right=False),
    Column("model", 18, 7, right=False),
    Column("progress", 11),
    Column("samples/s", 9, 2),
    Column("metric", 12),
    Column("took", 11, 4),
    Column("age", 6),
    Column("tags", 8, 6, right=False),
    Column("notes", 16, 8, right=False),
)
HEADS = {"progress": "steps", "how": "launcher"}


def columns(width: int) -> list[Column]:
    """The columns that fit, with the room that is left given to the name, then to the last."""
    found = fitting(COLUMNS, width - PREFIX + 1)
    left = max(width - PREFIX + 1 - taken(found), 0)
    widths = {column.name: column.width for column in found}
    for name, most in (*GROWING, (found[-1].name, left)):
        if name in widths:
            widths[name] += min(left, most)
            left -= min(left, most)
    return [column._replace(width=widths[column.name]) for column in found]


def column_at(x: int, width: int) -> str:
    """The name of the column at a cell, "status" for the marks before the first one."""
    if x < PREFIX:
        return "status"
    end = PREFIX
    for column in columns(width):
        end += column.width + 1
        if x < end:
            return column.name
    return ""


def head(by: str, descending: bool, width: int) -> Text:
    """Names of the columns, with an arrow at the one that the rows are sorted by."""
    arrow = "↓" if descending else "↑"
    line = Text(f"{arrow if by == 'status' else ''}".rjust(PREFIX - 1) + " ", no_wrap=True)
    for column in columns(width):
        text = HEADS.get(column.name, column.name)
        if column.name == by:
            text = f"{arrow}{text}" if column.right else f"{text}{arrow}"
        line.append(aligned(Text(text), column)).append(" ")
    return line


def one(row: Row, width: int, marked: bool, paper: Color) -> Text:
    """A run's line."""
    mark, (dot, colour) = marks.of_run(row.id), STATUSES.get(row.status, UNKNOWN)
    line = Text(no_wrap=True)
    line.append("✓" if marked else " ", "bold").append("↥" if row.pinned else " ", "bold")
    line.append(f"{mark.shape} ", legible(mark.colour, paper)).append(f"{dot} ", colour)
    cells = _cells(row)
    for column in columns(width):
        line.append_text(aligned(cells[column.name], column)).append(" ")
    return line


def _cells(row: Row) -> dict[str, Text]:
    name = Text(row.name, "bold" if row.live else "") if row.name else Text(row.short, "italic")
    ranks = f" ×{row.ranks}" if row.ranks else ""
    return {
        "name": name,
        "strategy": Text.assemble(row.strategy, (ranks, "dim")),
        "how": Text(f"{row.launcher} {row.precision}".strip(), "dim"),
        "progress": _progress(row),
        "samples/s": Text(words.round_rate(row.samples_per_s)),
        "metric": _metric(row),
        "took": Text(words.duration(row.seconds), "dim"),
        "age": Text(words.age(row.created), "dim"),
        "model": Text(f"{row.model} on {row.data}" if row.model else "", "dim"),
        "notes": Text(" ".join(row.notes.split()), "dim"),
        "tags": Text(" ".join(f"#{tag}" for tag in row.tags), "cyan"),
    }


def _progress(row: Row) -> Text:
    if row.kind == BENCH:
        return _rounds(row)
    if not row.live:
        return Text(words.count(row.step))
    if row.job not in ("", jobs.RUNNING):
        return Text(row.job, jobs.COLOURS.get(row.job, "red"))
    if row.fraction is None:
        return Text(row.status, STATUSES.get(row.status, UNKNOWN)[1])
    filled = round(BAR * row.fraction)
    bar = Text("━" * filled, STATUSES.get(row.status, UNKNOWN)[1]).append(
        "─" * (BAR - filled), "dim"
    )
    return bar.append(f"{100 * row.fraction:.0f} %".rjust(6))


def _rounds(row: Row) -> Text:
    if row.live:
        return Text(f"round {row.step}/{row.most}", STATUSES.get(row.status, UNKNOWN)[1])
    return Text(words.things(row.step or 0, "round"))


def _metric(row: Row) -> Text:
    value = words.metric_value(row.metric, row.value) if row.metric else words.MISSING
    name = f"{row.metric} " if row.metric and len(row.metric) + len(value) < 12 else ""
    return Text.assemble((name, "dim"), value)


def about(row: Row | None, short: bool = False) -> Text:
    """What the columns do not tell of a run: how it ended, what it trained, what was noted."""
    if row is None:
        return Text()
    dot, colour = STATUSES.get(row.status, UNKNOWN)
    ending = Text(f" {dot} {row.status}", colour)
    if row.reason and (row.status != "completed" or row.kind == BENCH):
        ending.append(f": {words.line(row.reason)}")
    if row.live and row.eta is not None:
        ending.append(f", {words.duration(row.eta)} to go")
    what = f"{row.model} on {row.data}" if row.model else ""
    where = ", ".join(row.devices[:4]) + (" …" if len(row.devices) > 4 else "")
    parts = [Text(part, "dim") for part in (row.id, what, where) if part]
    notes = Text(" ".join([*row.notes.split(), *(f"#{tag}" for tag in row.tags)]))
    if short and notes:
        parts.insert(0, notes)
    first = Text("  ", no_wrap=True, overflow="ellipsis").join([ending, *parts])
    return first if short or not notes else first.append("\n ").append_text(notes)
