"""The columns of the runs table, and the text of its header and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.text import Text
from textual.color import Color

from distrain.runners import formatting
from distrain.runners.analysis.run_keys import Value
from distrain.runners.records import job_status
from distrain.runners.records.run_ids import short_id
from distrain.tui.data.run_listing import FIRST_COLUMNS
from distrain.tui.data.run_rows import BENCH, CONFIG, METRIC, RunRow, column_key
from distrain.tui.marks import Mark
from distrain.tui.widgets.colours import FAILED_JOB, JOB_STATES, STATUSES, UNKNOWN, legible_style
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit, total_width

PREFIX = 6  # cells of "✓↥● ✔ "
NAME = 15  # least cells of the name
BAR = 5  # cells of the progress bar
METRIC_VALUE = 9  # cells of "100.00 %", and a gap
VALUES = 14  # most cells of a column of a config key
# Cells that columns get of the remaining room, in this order; a last column of text takes the rest.
GROWING = (("name", 13), ("tags", 10), ("name", 6))

COLUMNS = (
    TableColumn("name", NAME, right=False),
    TableColumn("strategy", 12, 3, right=False),
    TableColumn("setup", 13, 9, right=False),
    TableColumn("model", 18, 12, right=False),
    TableColumn("progress", 11),
    TableColumn("samples/s", 12, 2),
    TableColumn("metric", 12),
    TableColumn("duration", 11, 6),
    TableColumn("age", 6),
    TableColumn("group", 14, 10, right=False),
    TableColumn("host", 10, 14, right=False),
    TableColumn("tags", 8, 11, right=False),
    TableColumn("notes", 16, 13, right=False),
)
BY_NAME = {column.name: column for column in COLUMNS}
# The `spare` of the columns of config keys, the first ones first.
SPARE_OF_SETTINGS = (4, 5, 7, 8, 10, 13)
TITLES = {"progress": "steps"}


class TableLayout:
    """The columns of some rows, and those of them that fit into a width.

    If the names are `chosen`, the last ones are left out first. The column `by` that sorts the rows
    stays.
    """

    def __init__(
        self, names: Sequence[str], rows: Sequence[RunRow], chosen: bool = False, by: str = ""
    ) -> None:
        self.metric = _common_metric(rows)
        self.titles = _titles(names, self.metric)
        settings = [name for name in names if column_key(name)]
        columns = []
        for at, name in enumerate(names):
            spare = BY_NAME[name].spare if name in BY_NAME else 0
            if name == by:
                spare = 0
            elif chosen:
                spare = at
            elif name in settings:
                spare = SPARE_OF_SETTINGS[min(settings.index(name), len(SPARE_OF_SETTINGS) - 1)]
            columns.append(self._column(name, rows)._replace(spare=spare))
        self.columns = columns
        self._fitted: dict[int, list[TableColumn]] = {}

    def _column(self, name: str, rows: Sequence[RunRow]) -> TableColumn:
        if name == "metric" and self.metric:
            return BY_NAME[name]._replace(width=max(len(self.metric) + 1, METRIC_VALUE))
        if name in BY_NAME:
            return BY_NAME[name]
        distinct = {value: row for row in rows if (value := _value(row, name)) is not None}
        texts = [_setting(row, name) for row in distinct.values()]
        widest = max((len(text) for text in (*texts, self.titles[name])), default=0)
        return TableColumn(name, min(widest + 1, VALUES), right=all(map(_is_figure, texts)))

    def fitted(self, width: int) -> list[TableColumn]:
        """Return the columns that fit, some of them wider where there is room."""
        if width not in self._fitted:
            self._fitted = {width: self._fit(width)}
        return self._fitted[width]

    def _fit(self, width: int) -> list[TableColumn]:
        found = columns_that_fit(self.columns, width - PREFIX + 1)
        left = max(width - PREFIX + 1 - total_width(found), 0)
        widths = {column.name: column.width for column in found}
        last = (found[-1].name, 0 if found[-1].right else left)  # figures stay near the others
        for name, most in (*GROWING, last):
            if name in widths:
                widths[name] += min(left, most)
                left -= min(left, most)
        return [column._replace(width=widths[column.name]) for column in found]

    def column_at(self, x: int, width: int) -> str:
        """Return the column at a cell, "status" for the marks before the first column."""
        if x < PREFIX:
            return "status"
        end = PREFIX
        for column in self.fitted(width):
            end += column.width + 1
            if x < end:
                return column.name
        return ""

    def header(self, by: str, descending: bool, width: int) -> Text:
        """Return the column titles with an arrow at the column that sorts the rows."""
        arrow = "↓" if descending else "↑"
        line = Text(f"{arrow if by == 'status' else ''}".rjust(PREFIX - 1) + " ", no_wrap=True)
        for column in self.fitted(width):
            text = self.titles[column.name]
            if column.name == by:
                text = f"{arrow}{text}" if column.right else f"{text}{arrow}"
            line.append(align(Text(text), column)).append(" ")
        return line

    def row_line(
        self, row: RunRow, mark: Mark, width: int, marked: bool, background: Color
    ) -> Text:
        """Return the row of a run, legible on the background."""
        dot, colour = STATUSES.get(row.current_status, UNKNOWN)
        line = Text(no_wrap=True)
        line.append("✓" if marked else " ", "bold").append("↥" if row.pinned else " ", "bold")
        line.append(f"{mark.shape} ", legible_style(mark.colour, background))
        line.append(f"{dot} ", colour)
        for column in self.fitted(width):
            line.append_text(align(self._cell(row, column), column)).append(" ")
        return line

    def _cell(self, row: RunRow, column: TableColumn) -> Text:
        name = column.name
        if name == "metric":
            return _metric(row, 0 if self.metric else column.width)
        return CELLS[name](row) if name in CELLS else Text(_setting(row, name))


def column_title(name: str) -> str:
    """Return the full title of a column: "steps", "train.lr"."""
    key = column_key(name)
    return key.name if key else TITLES.get(name, name)


def _titles(names: Sequence[str], metric: str) -> dict[str, str]:
    """Return the titles in the header: of keys the last part, if no other column has the same."""
    full = {name: column_title(name) for name in names}
    short = {
        name: text.rpartition(".")[2] if name.startswith(CONFIG) else text
        for name, text in full.items()
    }
    every = list(short.values())
    titles = {name: text if every.count(text) == 1 else full[name] for name, text in short.items()}
    return {**titles, "metric": metric or "metric"} if "metric" in titles else titles


def _common_metric(rows: Iterable[RunRow]) -> str:
    """Return the main metric that all rows with one have; empty where there are several."""
    found = {row.metric for row in rows if row.metric}
    return found.pop() if len(found) == 1 else ""


def _is_figure(text: str) -> bool:
    return text == formatting.MISSING or text[:1].isdigit() or text[:2].strip("-.").isdigit()


def _value(row: RunRow, name: str) -> Value:
    key = column_key(name)
    return row.value_of(key) if key else None


def _setting(row: RunRow, name: str) -> str:
    """Return the text of a column of a config key or metric."""
    value = _value(row, name)
    if name.startswith(METRIC) and isinstance(value, float):
        return formatting.metric_value(name.removeprefix(METRIC), value)
    return formatting.setting(value)


def _name(row: RunRow) -> Text:
    return Text(row.name, "bold" if row.live else "") if row.name else Text(row.short, "italic")


def _strategy(row: RunRow) -> Text:
    return Text.assemble(row.strategy, (f" ×{row.ranks}" if row.ranks else "", "dim"))


def rate_text(row: RunRow) -> Text:
    """Return the rate with what it is: of the last seconds, or the mean of all steps."""
    if row.samples_per_s is None:
        return Text(formatting.MISSING)
    kind = " now" if row.live else " mean"
    return Text.assemble(formatting.round_rate(row.samples_per_s), (kind, "dim"))


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


def _metric(row: RunRow, width: int) -> Text:
    """Return the main metric, with its name if `width` is not 0: the name is cut to fit."""
    if not row.metric:
        return Text(formatting.MISSING)
    value = formatting.metric_value(row.metric, row.value)
    if not width:
        return Text(value)
    name = Text(row.metric, "dim")
    name.truncate(max(width - len(value) - 1, 1), overflow="ellipsis")
    return Text(" ").join([name, Text(value)])


CELLS: dict[str, Callable[[RunRow], Text]] = {
    "name": _name,
    "strategy": _strategy,
    "setup": lambda row: Text(f"{row.launcher} {row.precision}".strip(), "dim"),
    "progress": _progress,
    "samples/s": rate_text,
    "duration": lambda row: Text(formatting.duration(row.seconds), "dim"),
    "age": lambda row: Text(formatting.age(row.created), "dim"),
    "model": lambda row: Text(f"{row.model} on {row.data}" if row.data else row.model, "dim"),
    "group": lambda row: Text(short_id(row.group), "dim"),
    "host": lambda row: Text(", ".join(row.hosts), "dim"),
    "notes": lambda row: Text(" ".join(row.notes.split()), "dim"),
    "tags": lambda row: Text(" ".join(f"#{tag}" for tag in row.tags), "cyan"),
}


DEFAULT_LAYOUT = TableLayout(FIRST_COLUMNS, ())
