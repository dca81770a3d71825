"""The contestants of a bench beside each other, with a cursor to open the runs of one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.geometry import Region

from runners.comparison import Comparison, Contestant, wording
from tui import keymap, marks
from tui.widgets import phases
from tui.widgets.columns import Column, aligned, fitting, taken
from tui.widgets.inks import legible
from tui.widgets.text_pane import TextPane

COLUMNS = (
    Column("rounds", 6, 2, right=False),
    Column("samples/s", 9),
    Column("95 % interval", 15, 3),
    Column("ratio", 7),
    Column("its interval", 13, 1),
)
LEAST_NAME, LEAST_BAR = 18, 10
OUTLIER = "✕"
CURSOR, NOW = "▸", "●"


class BenchStanding(TextPane):
    """`show` gives it the comparison and who trains now."""

    HELP = (
        "Medians of all rounds, each with the interval that holds it 95 times of 100; the ratio "
        "is to the baseline, of the same rounds. ✕ counts rounds far from the others, ● trains "
        "now. Bars are what a step's time goes to. {bench.open} lists the runs of a contestant."
    )
    BINDINGS = [  # noqa: RUF012
        keymap.hidden("up,k", "move(-1)"),
        keymap.hidden("down,j", "move(1)"),
    ]
    fixed = 1

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self._found: Comparison | None = None
        self._now = ""
        self._at = 0

    def show(self, found: Comparison, now: str) -> None:
        """`now` is the contestant that trains."""
        self._found, self._now = found, now
        self._paint()

    @property
    def contestant(self) -> Contestant | None:
        """The one under the cursor."""
        return self._found.contestants[self._at] if self._found else None

    def action_move(self, by: int) -> None:
        if self._found is None:
            return
        self._at = max(0, min(self._at + by, len(self._found.contestants) - 1))
        self._paint()
        room = Region(0, self._at + 1, 1, 1)
        self.scroll_to_region(room, animate=False, force=True)

    def _paint(self) -> None:
        if self._found is None:
            return
        ends = inks(self._found, self)
        self.put(table(self._found, ends, self.width, self._at, self._now))


def inks(found: Comparison, pane: TextPane) -> list[tuple[str, Style]]:
    """The mark of each contestant and its style on this pane."""
    names = [each.name for each in found.contestants]
    paper = pane.background_colors[1]
    return [(mark.shape, legible(mark.colour, paper)) for mark in marks.of_runs(names)]


def table(
    found: Comparison, ends: Sequence[tuple[str, Style]], width: int, at: int, now: str
) -> list[Text]:
    """The head and a line for each contestant, as wide as there is room."""
    columns = fitting(COLUMNS, width - LEAST_NAME - LEAST_BAR)
    longest = max(len(each.name) for each in found.contestants) + 6
    name = max(min(longest, width - taken(columns) - LEAST_BAR), 8)
    bar = max(width - taken(columns) - name - 1, 0)
    bar = bar if bar >= LEAST_BAR // 2 else 0
    head = Text("  contestant"[:name].ljust(name), "dim", no_wrap=True)
    for column in columns:
        head.append(" ").append_text(aligned(Text(column.name, "dim"), column))
    head.append(" ").append_text(phases.legend(bar))
    lines = [head]
    for number, (each, (shape, ink)) in enumerate(zip(found.contestants, ends, strict=True)):
        line = _name(each.name, name, shape, ink, number == at, each.name == now)
        if each.problem:
            line.append(f" {each.problem}", "red")
        else:
            _figures(line, each, found, columns)
            line.append(" ").append_text(phases.bar(each.phases, bar))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def _name(name: str, width: int, shape: str, ink: Style, here: bool, now: bool) -> Text:
    cell = Text(name, "bold" if here else "")
    cell.truncate(max(width - 6, 1), overflow="ellipsis", pad=True)
    line = Text(f"{CURSOR if here else ' '} ", no_wrap=True).append(f"{shape} ", ink)
    return line.append_text(cell).append(f" {NOW if now else ' '}", "cyan")


def _figures(line: Text, each: Contestant, found: Comparison, columns: Sequence[Column]) -> None:
    _, rounds, rate, interval, ratio, its = wording.cells(each, found)
    counted = Text(rounds)
    if each.outliers:
        counted.append(f" {len(each.outliers)}{OUTLIER}", "yellow")
    cells = dict(
        zip(
            ("samples/s", "95 % interval", "ratio", "its interval"),
            map(Text, (rate, interval, ratio, its)),
            strict=True,
        )
    )
    cells["rounds"] = counted
    for column in columns:
        line.append(" ").append_text(aligned(cells[column.name], column))
