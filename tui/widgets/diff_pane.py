"""The figures of compared runs, and the differences of their configs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Unit
from distrain.runners.analysis.comparison.sentences import format_interval, format_ratio
from distrain.tui.data.run_comparison import (
    ComparedRun,
    ComparisonFrame,
    SettingValues,
    setting_text,
    setting_values,
)
from distrain.tui.keymap import insert_keys
from distrain.tui.widgets.border_text import fit_on_border
from distrain.tui.widgets.colours import STATUSES, UNKNOWN, legible_style
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit, total_width
from distrain.tui.widgets.text_pane import TextPane, wrapped

KEY = 24  # most cells of a key
LEAST = 9  # least cells of a value


class RunSummaries(TextPane):
    """A row per run with its mark, which is the legend of all plots, and its main figures."""

    HELP = "The main figures of each run. Its colour and mark are those of its line in every plot."
    DEFAULT_CSS = "RunSummaries { border: none; height: auto; &:focus { border: none; } }"
    fixed = 1

    def show(self, found: ComparisonFrame, hint: str = "") -> None:
        runs = found.runs
        styles = [legible_style(run.mark.colour, self.background_colors[1]) for run in runs]
        lines = summary_lines(runs, styles, self.width, hint, found.unit)
        self.fixed = len(lines) - len(runs)
        self.put([*lines, *result_lines(found, self.width)])


class DiffPane(TextPane):
    """Shows the settings in which runs differ, or all settings."""

    HELP = (
        "The settings that differ between the runs; {compare.differences} shows all. Settings "
        "after “ran on” come from the host, not from the config."
    )

    def show(self, runs: Sequence[ComparedRun], everything: bool = False) -> None:
        found = setting_values([run.settings for run in runs])
        shown = [each for each in found if everything or each.differs]
        differing = sum(each.differs for each in found)
        hint = insert_keys(
            f"{{compare.differences}}: {'differences' if everything else 'all'}", self.app
        )
        shorter = f"{differing} differ · {hint}"
        texts = (f"{differing} of {len(found)} differ · {hint}", shorter, hint)
        self.border_subtitle = fit_on_border(texts, self)
        styles = [legible_style(run.mark.colour, self.background_colors[1]) for run in runs]
        across = has_room_for_columns(len(runs), self.width)
        self.fixed = 1 if across else 0
        if not shown:
            self.put([Text("The configs are equal.", "dim")])
        else:
            self.put(
                (columns_of_values if across else lists_of_values)(runs, shown, styles, self.width)
            )


def has_room_for_columns(runs: int, width: int) -> bool:
    """Return whether there is room for a column per run."""
    return width - KEY >= runs * (LEAST + 1)


def columns_of_values(
    runs: Sequence[ComparedRun], found: Sequence[SettingValues], styles: Sequence[Style], width: int
) -> list[Text]:
    """Return a table with a column per run."""
    key = min(KEY, max(len(each.key) for each in found))
    room = min((width - key) // len(runs) - 1, 32)
    head = Text(" " * key, no_wrap=True)
    for run, style in zip(runs, styles, strict=True):
        head.append(" ").append_text(_cell(f"{run.mark.shape} {run.name}", room, style))
    lines = [head]
    for each in found:
        line = _cell(each.key, key, Style(dim=True))
        for run, value in zip(runs, each.values, strict=True):
            style = Style(dim=value is None or not each.differs)
            line.append(" ").append_text(_cell(setting_text(run, each.key), room, style))
        lines.append(line)
    return lines


def lists_of_values(
    runs: Sequence[ComparedRun], found: Sequence[SettingValues], styles: Sequence[Style], width: int
) -> list[Text]:
    """Return a line per value with the marks of its runs."""
    lines = []
    for each in found:
        texts = [setting_text(run, each.key) for run in runs]
        if not each.differs:
            known = next((text for text in texts if text != formatting.MISSING), formatting.MISSING)
            lines.append(_cell(f"{each.key}  {known}", width, Style(dim=True)))
            continue
        lines.append(_cell(each.key, width, Style(bold=True)))
        for text in dict.fromkeys(texts):
            line = Text(" ", no_wrap=True)
            for run, own, style in zip(runs, texts, styles, strict=True):
                line.append(run.mark.shape if own == text else " ", style)
            line.append(f" {text}")
            line.truncate(width, overflow="ellipsis")
            lines.append(line)
    return lines


RATE = "rate"  # shown under the unit of the comparison
COLUMNS = (
    TableColumn("status", 11, 2),
    TableColumn(RATE, 14),
    TableColumn("ratio", 7, 1),
    TableColumn("95 % interval", 13, 5),
    TableColumn("metric", 14),
    TableColumn("duration", 11),
    TableColumn("ranks", 5, 3),
    TableColumn("devices", 16, 4),
)
LEAST_NAME = 16  # cells


def summary_lines(
    runs: Sequence[ComparedRun],
    styles: Sequence[Style],
    width: int,
    hint: str = "",
    unit: Unit = "samples/s",
) -> list[Text]:
    """Return the header and a row per run, fitted to a width. The hint is in the header, or above
    it where it does not fit there.
    """
    columns = columns_that_fit(COLUMNS, width - LEAST_NAME)
    room = max(width - total_width(columns), 8)
    longest = max(len(run.name) for run in runs) + 4
    name = min(room, max(longest, len(hint) + 8))
    wanted = max(len(" ".join(run.row.devices)) for run in runs)
    if columns[-1].name == "devices":
        devices = columns[-1].width
        wide = max(devices, min(devices + room - name, wanted))
        columns[-1] = columns[-1]._replace(width=wide)
    title = f"  run   {hint}".rstrip()
    is_above = len(title) > name
    head = _cell("  run" if is_above else title, name, Style(dim=True))
    for column in columns:
        heading = unit if column.name == RATE else column.name
        head.append(" ").append_text(align(Text(heading, "dim"), column))
    lines = [_cell(f"  {hint}", width, Style(dim=True)), head] if is_above else [head]
    for run, style in zip(runs, styles, strict=True):
        line = _cell(f"{run.mark.shape} {run.name}", name, style)
        texts = _figures(run, unit)
        for column in columns:
            line.append(" ").append_text(align(texts[column.name], column))
        lines.append(line)
    return lines


def result_lines(found: ComparisonFrame, width: int) -> list[Text]:
    """Return why the runs are not comparable, what was not checked, and the results."""
    lines = wrapped(found.unequal, "bold yellow", width) if found.unequal else []
    if found.unchecked:
        lines += wrapped(found.unchecked, "yellow", width)
    for result in found.results:
        lines += wrapped(result, "", width)
    return lines


def _figures(run: ComparedRun, unit: Unit) -> dict[str, Text]:
    row = run.row
    ratio = run.ratio
    done = f" {100 * row.fraction:.0f} %" if row.live and row.fraction is not None else ""
    value = formatting.metric(row.metric, row.value) if row.metric else formatting.MISSING
    return {
        "status": Text(done.strip() or row.status, STATUSES.get(row.status, UNKNOWN)[1]),
        RATE: _rate(run, unit),
        "ratio": Text(format_ratio(ratio.value) if ratio else formatting.MISSING),
        "95 % interval": Text(format_interval(ratio) if ratio else formatting.MISSING),
        "metric": Text(value),
        "duration": Text(formatting.duration(row.seconds)),
        "ranks": Text(formatting.count(row.ranks)),
        "devices": Text(" ".join(row.devices) or formatting.MISSING, "dim"),
    }


def _rate(run: ComparedRun, unit: Unit) -> Text:
    """Return the rate with what it is: the median without warm-up, else that of the table, which
    is in samples.
    """
    rate, kind = run.rate, "median"
    if rate is None and unit == "samples/s":
        rate, kind = run.row.samples_per_s, "now" if run.row.live else "mean"
    if rate is None:
        return Text(formatting.MISSING)
    return Text.assemble(formatting.round_rate(rate), (f" {kind}", "dim"))


def _cell(text: str, width: int, style: Style) -> Text:
    cell = Text(text, style, no_wrap=True)
    cell.truncate(width, overflow="ellipsis", pad=True)
    return Text.assemble(cell)
