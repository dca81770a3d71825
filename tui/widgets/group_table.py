"""The runs of a group: in what they differ, how far they are, and which is best so far."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from distrain.runners import formatting
from distrain.runners.analysis.best_run import BestRun, best_metric, find_best
from distrain.tui.data.run_comparison import (
    RAN,
    ComparedRun,
    ComparisonFrame,
    setting_text,
    setting_values,
)
from distrain.tui.widgets.colours import STATUSES, UNKNOWN, legible_style
from distrain.tui.widgets.cursor_pane import CursorPane
from distrain.tui.widgets.queue_table import with_names
from distrain.tui.widgets.run_columns import rate_text
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit, total_width
from distrain.tui.widgets.text_pane import wrapped

LONGEST_SETTING = 16
BEST = "best"


class GroupTable(CursorPane):
    """A row per run with its mark, which is the legend of all plots."""

    HELP = (
        "The runs of the group with the settings in which they differ. {group.open} opens the run "
        "under the cursor, {group.stop} stops all of them. The best run is that of the best last "
        "evaluation: one run of each setting does not show how much of it is chance."
    )
    DEFAULT_CSS = "GroupTable { border: none; height: auto; &:focus { border: none; } }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._frame: ComparisonFrame | None = None
        self._heading = ""

    def show(self, frame: ComparisonFrame, heading: str) -> None:
        """Show the runs; `heading` is what the whole group does, for the first line."""
        self._frame = frame
        self._heading = heading
        self._paint()

    def _paint(self) -> None:
        if self._frame is None or not self.width:
            return
        runs = self._frame.runs
        best = best_run(runs)
        styles = [legible_style(run.mark.colour, self.background_colors[1]) for run in runs]
        lines = wrapped(self._heading, "dim", self.width)
        lines += wrapped(best.sentence, "bold", self.width) if best.sentence else []
        lines += wrapped(self._waiting(runs), "", self.width)
        self.fixed = len(lines) + 1  # with the header
        lines += group_lines(runs, best, styles, self.width)
        self.put_rows([run.row.id for run in runs], lines)

    def action_move(self, by: int) -> None:
        super().action_move(by)
        self._paint()

    def _waiting(self, runs: Sequence[ComparedRun]) -> str:
        """Return what the run under the cursor waits for, or else the first run in the queue."""
        queued = [run for run in runs if run.row.status == "queued" and run.row.reason]
        queued.sort(key=lambda run: run.row.id != self.current)
        if not queued:
            return ""
        names = [(run.row.id, run.row.name, run.name) for run in runs]
        reason = formatting.single_line(queued[0].row.reason)
        return f"{queued[0].name} waits for {with_names(reason, names)}"


def best_run(runs: Sequence[ComparedRun]) -> BestRun:
    """Return which run has the best last evaluation."""
    evaluations = [
        {name: metric.value for name, metric in run.evaluations[-1].metrics.items()}
        if run.evaluations
        else {}
        for run in runs
    ]
    settings = runs[0].settings or {}
    wanted = settings.get("checkpoint.best"), settings.get("checkpoint.best_is")
    facts = next((run.facts for run in runs if run.facts), None)
    chosen, direction = best_metric(*wanted, facts)
    return find_best(
        [run.name for run in runs],
        evaluations,
        chosen=chosen,
        direction=direction,
        is_live=any(run.row.live for run in runs),
    )


def group_lines(
    runs: Sequence[ComparedRun], best: BestRun, styles: Sequence[Style], width: int
) -> list[Text]:
    """Return the header and a row per run, fitted to a width."""
    differing = {
        each.key: [setting_text(run, each.key) for run in runs]
        for each in setting_values([run.settings for run in runs])
        if each.differs and not each.key.startswith(RAN)
    }
    columns = columns_that_fit([*map(_setting_column, differing.items()), *COLUMNS], width - 16)
    name = max(min(width - total_width(columns), max(len(run.name) for run in runs) + 2), 8)
    head = _cell("  run", name, Style(dim=True))
    titles = {key: key.rpartition(".")[2] for key in differing}
    for column in columns:
        title = titles.get(column.name, column.name)
        title = {"metric": best.metric or title, "status": " status", BEST: ""}.get(title, title)
        head.append(" ").append_text(align(Text(title, "dim"), column))
    lines = [head]
    for n, (run, style) in enumerate(zip(runs, styles, strict=True)):
        line = _cell(f"{run.mark.shape} {run.name}", name, style)
        texts = {key: Text(values[n], "bold") for key, values in differing.items()}
        texts |= _figures(run, best.metric, n in best.runs)
        for column in columns:
            line.append(" ").append_text(align(texts[column.name], column))
        lines.append(line)
    return lines


COLUMNS = (
    TableColumn("status", 12, right=False),
    TableColumn("progress", 8, 4),
    TableColumn("metric", 12),
    TableColumn(BEST, 4, right=False),
    TableColumn("samples/s", 14, 3),
    TableColumn("duration", 10, 5),
)


def _setting_column(setting: tuple[str, Sequence[str]]) -> TableColumn:
    key, values = setting
    longest = max(map(len, [key.rpartition(".")[2], *values]))
    return TableColumn(key, min(longest, LONGEST_SETTING) + 1, 1)  # with a gap after a name


def _figures(run: ComparedRun, metric: str, is_best: bool) -> dict[str, Text]:
    row = run.row
    mark, colour = STATUSES.get(row.current_status, UNKNOWN)
    found = run.evaluations[-1].metrics.get(metric) if run.evaluations and metric else None
    value = formatting.metric_value(metric, found.value) if found else formatting.MISSING
    done = f"{100 * row.fraction:.0f} %" if row.live and row.fraction is not None else ""
    return {
        "status": Text(f" {mark} {row.current_status}", colour),
        "progress": Text(done or (formatting.MISSING if row.live else "")),
        "metric": Text(value, "bold" if is_best else ""),
        BEST: Text(BEST if is_best else "", "bold green"),
        "samples/s": rate_text(row),
        "duration": Text(formatting.duration(row.seconds)),
    }


def _cell(text: str, width: int, style: Style) -> Text:
    cell = Text(text, style, no_wrap=True)
    cell.truncate(width, overflow="ellipsis", pad=True)
    return Text.assemble(cell)
