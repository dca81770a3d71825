"""The pane next to or below the table of runs: the run or group under the cursor at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import isfinite, nan

from rich.text import Text
from textual.color import Color

from distrain.runners import formatting
from distrain.tui.data.run_glance import GlanceCurve, RunGlance, config_differences
from distrain.tui.data.run_groups import GroupRow, TableRow
from distrain.tui.data.run_rows import BENCH, RunRow
from distrain.tui.marks import RunMarks
from distrain.tui.plotting.sparkline import tall_sparkline
from distrain.tui.widgets.colours import STATUSES, UNKNOWN, legible_style
from distrain.tui.widgets.run_columns import column_title
from distrain.tui.widgets.run_details import reason_of
from distrain.tui.widgets.text_pane import TextLines, wrapped

MOST_DIFFERENCES = 12
MOST_METRICS = 6
LOSS_ROWS = 3  # of its sparkline, one less in two columns
MOST_RUNS = 16  # of a group
GAP = 3  # cells between two columns


class RunPreviewPane(TextLines):
    """Shows a run with what was read of it, and how its config differs from the pinned run's.

    Below the table it is wide and low: `in_two_columns` says to fill it so.
    """

    DEFAULT_CSS = """
    RunPreviewPane {
        width: 42; height: 1fr;
        border: round $foreground 30%; border-title-color: $text-muted;
        padding: 0 1; margin: 0 0 0 1;
    }
    """

    in_two_columns = False
    _shown: tuple[TableRow | None, RunGlance | None, RunRow | None] = (None, None, None)

    def __init__(self, run_marks: RunMarks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._run_marks = run_marks

    def on_mount(self) -> None:
        self.border_title = "Preview"

    def on_resize(self) -> None:
        """Show the line again: there is a width now, or another one."""
        self.show(*self._shown)

    def show(self, line: TableRow | None, glance: RunGlance | None, pinned: RunRow | None) -> None:
        """Show the line under the cursor; `glance` is None until the run has been read."""
        self._shown = line, glance, pinned
        width = self.content_size.width
        if self.in_two_columns:
            width = (width - GAP) // 2
        if width <= 0 or line is None:
            self.put([])
            return
        if isinstance(line, GroupRow):
            first, second = self._group_lines(line, width)
        else:
            mark = self._run_marks.of(line.id)
            style = legible_style(mark.colour, self.background_colors[1])
            name = Text.assemble((mark.shape, style), " ", (_name(line), "bold"))
            name.truncate(width, overflow="ellipsis")
            if self.in_two_columns:
                height = self.content_size.height
                first = [name, *status_lines(line, glance, width, height - 1)]
                second = curves_and_differences(line, glance, pinned, width, height)
            else:
                first = [name, *status_lines(line, glance, width), Text("")]
                second = curves_and_differences(line, glance, pinned, width)
        self.put(_side_by_side(first, second, width) if self.in_two_columns else [*first, *second])

    def _group_lines(self, group: GroupRow, width: int) -> tuple[list[Text], list[Text]]:
        """Return the lines of both columns: as many runs as there is room for."""
        background = self.background_colors[1]
        if not self.in_two_columns:
            return group_lines(group, self._run_marks, background, width)
        height = self.content_size.height
        most = max(2 * (height - 2), 1)
        title, runs = group_lines(group, self._run_marks, background, width, most)
        half = max(height - 2, 0)
        return [*title, *runs[:half]], [Text(""), Text(""), *runs[half:]]


def _side_by_side(first: Sequence[Text], second: Sequence[Text], width: int) -> list[Text]:
    lines = []
    for left, right in zip_longest(first, second, fillvalue=Text("")):
        line = left.copy()
        line.pad_right(width + GAP - line.cell_len)
        lines.append(line.append_text(right))
    return lines


def status_lines(
    row: RunRow, glance: RunGlance | None, width: int, height: int | None = None
) -> list[Text]:
    """Return the status, figures and notes of a run.

    Where the height is limited, there are only so many metrics that the other figures fit.
    """
    dot, colour = STATUSES.get(row.current_status, UNKNOWN)
    first = [Text(f"{dot} {row.current_status}", colour)]
    if row.reason and row.status != "completed":
        first = wrapped(f"{dot} {row.current_status}: {reason_of(row)}", colour, width)[:6]
    first += _setup(row, width)
    metrics, figures = _metrics(row, width), _figures(row, width)
    if height is None:
        first.append(Text(""))
    else:
        metrics = metrics[: max(height - len(first) - len(figures), 1)]
    first += [*metrics, *figures]
    if row.notes or row.tags:
        words = [row.notes, *(f"#{tag}" for tag in row.tags)]
        first += [Text(""), *wrapped(" ".join(words), "", width)]
    if glance is not None and glance.problem:
        first += wrapped(glance.problem, "yellow", width)
    return first


def curves_and_differences(
    row: RunRow,
    glance: RunGlance | None,
    pinned: RunRow | None,
    width: int,
    height: int | None = None,
) -> list[Text]:
    """Return the curves of a run and how its config differs from the pinned run's."""
    is_low = height is not None
    rows = LOSS_ROWS - 1 if is_low else LOSS_ROWS
    lines: list[Text] = []
    for curve in glance.curves if glance else ():
        found = curve_lines(curve, width, rows)
        lines += [Text(""), *found] if lines and found and not is_low else found
    if pinned is not None and pinned.id != row.id:
        lines += [Text("")] if lines else []
        most = MOST_DIFFERENCES if height is None else height - len(lines) - 1
        lines += _differences(row, pinned, width, most)
    return lines


def _setup(row: RunRow, width: int) -> list[Text]:
    parts = [
        f"{row.strategy} ×{row.ranks}" if row.ranks else row.strategy,
        f"{row.launcher} {row.precision}".strip(),
        f"{row.model} on {row.data}" if row.data else row.model,
    ]
    return wrapped(" · ".join(filter(None, parts)), "dim", width, hang=0)


def _metrics(row: RunRow, width: int) -> list[Text]:
    """Return the metrics of the last evaluation."""
    return [
        _pair(f"eval {name}", formatting.metric_value(name, row.metrics[name]), width)
        for name in formatting.sort_metrics(row.metrics)[:MOST_METRICS]
    ]


def _figures(row: RunRow, width: int) -> list[Text]:
    """Return the other figures of a run, each with what it is."""
    figures = []
    if row.step is not None:
        figures.append(("rounds" if row.kind == BENCH else "steps", formatting.count(row.step)))
    if row.samples_per_s is not None:
        kind = "now" if row.live else "mean"
        figures.append((f"samples/s ({kind})", formatting.round_rate(row.samples_per_s)))
    if row.seconds is not None:
        figures.append(("duration", formatting.duration(row.seconds)))
    if row.live and row.eta is not None:
        figures.append(("time left", formatting.duration(row.eta)))
    return [_pair(label, value, width) for label, value in figures]


def _pair(label: str, value: str, width: int) -> Text:
    """Return a label at the left and its value at the right."""
    line = _cell(label, max(width - len(value) - 1, 4), "dim")
    return line.append(f" {value}")


def curve_lines(curve: GlanceCurve, width: int, loss_rows: int) -> list[Text]:
    """Return a sparkline from the least to the greatest value, with the first and last value."""
    values = [value if isfinite(value) else nan for value in curve.values]
    known = [value for value in values if value == value]
    if not known:
        return []
    low = min(0.0, *known) if curve.from_zero else min(known)
    high = max(known)
    rows = 1 if curve.from_zero else loss_rows
    drawn = [value - low for value in _stretched(values, width)]
    bars = tall_sparkline(drawn, width, high - low or 1.0, rows)
    ends = f"{formatting.figure(known[0])} → {formatting.figure(known[-1])}"
    return [_pair(curve.title, ends, width), *(Text(line, "cyan") for line in bars)]


def _stretched(values: Sequence[float], width: int) -> Sequence[float]:
    """Return at least `width` values: few are repeated."""
    if len(values) >= width:
        return values
    return [values[at * len(values) // width] for at in range(width)]


def _differences(row: RunRow, pinned: RunRow, width: int, most: int) -> list[Text]:
    """Return the first of the keys that differ, in at most `most` lines below the heading."""
    found = config_differences(row.config, pinned.config)
    title = f"config, and that of {_name(pinned)} (pinned)"
    if not found:
        return wrapped(f"same config as {_name(pinned)} (pinned)", "dim", width)
    lines = wrapped(title, "dim", width)
    shown = found if len(found) <= most else found[: max(most - 1, 1)]
    key = min(max(len(pair.key) for pair in shown), width // 2)
    room = (width - key) // 2 - 1
    for pair in shown:
        line = _cell(pair.key, key, "dim")
        line.append(" ").append_text(_cell(pair.own, room, "bold", right=True))
        lines.append(line.append(" ").append_text(_cell(pair.other, room, "", right=True)))
    if len(found) > len(shown):
        lines.append(Text(f"and {len(found) - len(shown)} more", "dim"))
    return lines


def group_lines(
    group: GroupRow, run_marks: RunMarks, background: Color, width: int, most: int = MOST_RUNS
) -> tuple[list[Text], list[Text]]:
    """Return the title of a group, and a line for each of at most `most` runs, with its mark,
    status and main metric, the best first.
    """
    title = Text.assemble((f"{column_title(group.column)} ", "dim"), (group.label, "bold"))
    title.append(f"  {formatting.plural(len(group.rows), 'run')}")
    title.truncate(width, overflow="ellipsis")
    direction = formatting.best_is(group.metric)
    rows: Sequence[RunRow] = group.rows
    if direction is not None:
        sign = -1 if direction == "max" else 1
        rows = sorted(rows, key=lambda row: (row.value is None, sign * (row.value or 0.0)))
    shown = rows if len(rows) <= most else rows[: most - 1]
    lines = []
    for row in shown:
        mark, (dot, colour) = run_marks.of(row.id), STATUSES.get(row.current_status, UNKNOWN)
        line = Text.assemble((mark.shape, legible_style(mark.colour, background)), " ")
        line.append(f"{dot} ", colour)
        has_value = row.metric and row.value is not None
        value = formatting.metric(row.metric, row.value) if has_value else row.current_status
        lines.append(line.append_text(_pair(_name(row), value, width - line.cell_len)))
    if len(rows) > len(shown):
        lines.append(Text(f"and {len(rows) - len(shown):,} more", "dim"))
    return [title, Text("")], lines


def _name(row: RunRow) -> str:
    return row.name or row.short


def _cell(text: str, width: int, style: str, right: bool = False) -> Text:
    cell = Text(text, style, no_wrap=True)
    cell.truncate(width, overflow="ellipsis")
    if right:
        cell.pad_left(width - cell.cell_len)
    else:
        cell.pad_right(width - cell.cell_len)
    return Text.assemble(cell)
