"""The rounds of a bench as dots: a line per candidate on a common scale of rates."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from distrain.runners.analysis.comparison.model import Candidate, Comparison
from distrain.tui.plotting.scale import Scale, axis_labels, fit_scale
from distrain.tui.widgets.bench_results import OUTLIER, candidate_marks
from distrain.tui.widgets.short_names import drop_common_words
from distrain.tui.widgets.text_pane import TextPane

ROUND = "•"
INTERVAL = "─"
ENDS = "├┤"
MEDIAN = "┃"
LEAST = 16  # cells of the scale


class BenchRounds(TextPane):
    """Shows the rounds of a comparison."""

    HELP = (
        "Each dot is a round of a candidate, ✕ is an outlier, ┃ the median, ├┤ its 95 % "
        "confidence interval. Ratios in the table compare the same rounds, so they may differ "
        "significantly although intervals overlap here."
    )

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self.border_subtitle = f"{ROUND} round  {OUTLIER} outlier  {ENDS} interval  {MEDIAN} median"
        self._found: Comparison | None = None

    def show(self, found: Comparison) -> None:
        self._found = found
        self._paint()

    def _paint(self) -> None:
        if self._found is not None:
            self.border_title = f"{self._found.unit.capitalize()} of each round"
            self.put(round_lines(self._found, candidate_marks(self._found, self), self.width))


def round_lines(
    found: Comparison, styled_marks: Sequence[tuple[str, Style]], width: int
) -> list[Text]:
    """Return a line per candidate and the scale below them."""
    values = [value for each in found.candidates for value in _values(each)]
    if not values:
        return [Text("no measurements yet", "dim")]
    longest = max(len(each.name) for each in found.candidates) + 2
    name = min(longest, max(width // 4, 8), max(width - LEAST, 1))
    cells = max(width - name - 1, 1)
    scale = fit_scale(min(values), max(values), max(cells // 9, 2))
    names = drop_common_words([each.name for each in found.candidates], name - 2)
    lines = []
    for each, shown, (shape, style) in zip(found.candidates, names, styled_marks, strict=True):
        line = Text(f"{shape} ", style, no_wrap=True)
        line.append(shown, "default")
        line.truncate(name, overflow="ellipsis", pad=True)
        lines.append(line.append(" ").append_text(_strip(each, scale, cells, style)))
    return [*lines, _axis(scale, name + 1, cells)]


def _values(each: Candidate) -> list[float]:
    values = [*each.rates]
    if each.rate:
        values += [each.rate.low, each.rate.high]
    return values


def _strip(each: Candidate, scale: Scale, cells: int, style: Style) -> Text:
    """Return the interval with the rounds over it, then its ends, the median and outliers."""
    line: list[tuple[str, Style]] = [(" ", Style())] * cells
    places = [round(place) for place in scale.places(each.rates, cells)]
    interval = each.rate  # a single round has none
    ends = [interval.low, interval.value, interval.high] if interval else []
    marks = [round(place) for place in scale.places(ends, cells)]
    if marks:
        line[marks[0] : marks[2] + 1] = [(INTERVAL, style)] * (marks[2] + 1 - marks[0])
    for place in places:
        line[place] = (ROUND, style)
    if marks:
        line[marks[0]], line[marks[2]] = ((end, style) for end in ENDS)
        line[marks[1]] = (MEDIAN, style + Style(bold=True))
    for number in each.outliers:
        line[places[number]] = (OUTLIER, Style(color="yellow"))
    return Text.assemble(*line, no_wrap=True)


def _axis(scale: Scale, left: int, cells: int) -> Text:
    line = [" "] * (left + cells)
    for label in axis_labels("value", scale, cells):
        line[left + label.start : left + label.start + len(label.text)] = label.text
    return Text("".join(line).rstrip(), "dim", no_wrap=True)
