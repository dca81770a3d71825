"""The results of a bench: a row per candidate, with a cursor to open its runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.geometry import Region

from distrain.runners.analysis.comparison import descriptions
from distrain.runners.analysis.comparison.model import Candidate, Comparison
from distrain.tui import keymap, marks
from distrain.tui.widgets import phase_bar
from distrain.tui.widgets.colours import legible_style
from distrain.tui.widgets.short_names import drop_common_words
from distrain.tui.widgets.table_columns import (
    TableColumn,
    align,
    columns_that_fit,
    total_width,
)
from distrain.tui.widgets.text_pane import TextPane

RATE = "rate"  # its header is the unit
COLUMNS = (
    TableColumn("rounds", 6, 2, right=False),
    TableColumn(RATE, 9),
    TableColumn("95 % interval", 15, 3),
    TableColumn("ratio", 7),
    TableColumn("ratio 95 % CI", 13, 1),
)
LEAST_NAME = 18
LEAST_BAR = 10
GAP = 2  # cells between the columns and the bar
OUTLIER = "✕"
CURSOR = "▸"
NOW = "●"
SIGNS = 6  # cells of a name's column for cursor, mark and NOW


class BenchResults(TextPane):
    """Shows a comparison; `show` also takes the name of the candidate measured now, or ""."""

    HELP = (
        "Rates are medians over all rounds, with 95 % confidence intervals. The ratio is to "
        "the baseline in the same rounds. ✕ counts outliers, ● marks the candidate that is "
        "measured now. Bars show how a step spends its time. {bench.open} lists the runs of a "
        "candidate."
    )
    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("up,k", "move(-1)"),
        keymap.make_hidden_binding("down,j", "move(1)"),
    ]
    fixed = 1

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self._found: Comparison | None = None
        self._now = ""
        self._at = 0

    def show(self, found: Comparison, now: str) -> None:
        self._found = found
        self._now = now
        self._paint()

    @property
    def candidate(self) -> Candidate | None:
        """Return the candidate under the cursor."""
        return self._found.candidates[self._at] if self._found else None

    def action_move(self, by: int) -> None:
        if self._found is None:
            return
        self._at = max(0, min(self._at + by, len(self._found.candidates) - 1))
        self._paint()
        room = Region(0, self._at + 1, 1, 1)
        self.scroll_to_region(room, animate=False, force=True)

    def _paint(self) -> None:
        if self._found is None:
            return
        styled_marks = candidate_marks(self._found, self)
        lines = table(self._found, styled_marks, self.width, self._at, self._now)
        is_unnamed = lines[0].plain.endswith(phase_bar.UNNAMED)
        self.border_subtitle = phase_bar.letters(self.width) if is_unnamed else ""
        self.put(lines)


def candidate_marks(found: Comparison, pane: TextPane) -> list[tuple[str, Style]]:
    """Return the mark of each candidate with its style on this pane."""
    background = pane.background_colors[1]
    found_marks = marks.first_marks(len(found.candidates))
    return [(mark.shape, legible_style(mark.colour, background)) for mark in found_marks]


def table(
    found: Comparison, styled_marks: Sequence[tuple[str, Style]], width: int, at: int, now: str
) -> list[Text]:
    """Return the header and a row per candidate, fitted to a width."""
    columns = columns_that_fit(COLUMNS, width - LEAST_NAME - LEAST_BAR)
    longest = max(len(each.name) for each in found.candidates) + SIGNS
    name = max(min(longest, width - total_width(columns) - LEAST_BAR), 8)
    bar = max(width - total_width(columns) - name - GAP, 0)
    if bar < LEAST_BAR // 2:
        bar = 0
    header = Text("  candidate"[:name].ljust(name), "dim", no_wrap=True)
    for column in columns:
        title = found.unit if column.name == RATE else column.name
        header.append(" ").append_text(align(Text(title, "dim"), column))
    header.append(" " * GAP).append_text(phase_bar.legend(bar))
    lines = [header]
    names = drop_common_words([each.name for each in found.candidates], name - SIGNS)
    rows = zip(found.candidates, names, styled_marks, strict=True)
    for number, (each, shown, (shape, style)) in enumerate(rows):
        line = _name(shown, name, shape, style, number == at, each.name == now)
        if each.problem:
            line.append(f" {each.problem}", "red")
        else:
            _figures(line, each, found, columns)
            line.append(" " * GAP).append_text(phase_bar.bar(each.phases, bar))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def _name(name: str, width: int, shape: str, style: Style, here: bool, now: bool) -> Text:
    cell = Text(name, "bold" if here else "")
    cell.truncate(max(width - SIGNS, 1), overflow="ellipsis", pad=True)
    line = Text(f"{CURSOR if here else ' '} ", no_wrap=True).append(f"{shape} ", style)
    return line.append_text(cell).append(f" {NOW if now else ' '}", "cyan")


def _figures(
    line: Text, each: Candidate, found: Comparison, columns: Sequence[TableColumn]
) -> None:
    _, rounds, rate, interval, ratio, ratio_interval = descriptions.result_cells(each, found)
    counted = Text(rounds)
    if each.outliers:
        counted.append(f" {len(each.outliers)}{OUTLIER}", "yellow")
    cells = {
        "rounds": counted,
        RATE: Text(rate),
        "95 % interval": Text(interval),
        "ratio": Text(ratio),
        "ratio 95 % CI": Text(ratio_interval),
    }
    for column in columns:
        line.append(" ").append_text(align(cells[column.name], column))
