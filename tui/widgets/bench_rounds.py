"""The rounds of a bench as a picture: a line for each contestant, all on one scale of samples/s."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from runners.comparison import Comparison, Contestant
from tui.plotting.scale import Scale, fitted, under_axis
from tui.widgets.bench_standing import OUTLIER, inks
from tui.widgets.text_pane import TextPane

ROUND, INTERVAL, ENDS, MEDIAN = "•", "─", "├┤", "┃"
LEAST = 16  # cells of the scale


class BenchRounds(TextPane):
    """`show` gives it the comparison."""

    HELP = (
        "Each dot is a round of a contestant; ✕ lies far from the others. ├┤ is the interval "
        "that holds the median 95 times of 100, ┃ the median. The ratios in the table are of the "
        "same rounds, and so may tell apart what overlaps here."
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
            self.put(picture(self._found, inks(self._found, self), self.width))


def picture(found: Comparison, ends: Sequence[tuple[str, Style]], width: int) -> list[Text]:
    """A line for each contestant and the scale below them."""
    values = [value for each in found.contestants for value in _values(each)]
    if not values:
        return [Text("nothing was measured yet", "dim")]
    longest = max(len(each.name) for each in found.contestants) + 2
    name = min(longest, max(width // 4, 8), max(width - LEAST, 1))
    cells = max(width - name - 1, 1)
    scale = fitted(min(values), max(values), max(cells // 9, 2))
    lines = []
    for each, (shape, ink) in zip(found.contestants, ends, strict=True):
        line = Text(f"{shape} ", ink, no_wrap=True)
        line.append(each.name, "default")
        line.truncate(name, overflow="ellipsis", pad=True)
        lines.append(line.append(" ").append_text(_strip(each, scale, cells, ink)))
    return [*lines, _axis(scale, name + 1, cells)]


def _values(each: Contestant) -> list[float]:
    return [*each.rates, *((each.rate.low, each.rate.high) if each.rate else ())]


def _strip(each: Contestant, scale: Scale, cells: int, ink: Style) -> Text:
    """The interval, rounds over it, its ends and the median over them; outliers hide all."""
    line: list[tuple[str, Style]] = [(" ", Style())] * cells
    if each.rate is None:
        return Text.assemble(*line, no_wrap=True)
    places = [round(place) for place in scale.places(each.rates, cells)]
    ends = scale.places([each.rate.low, each.rate.value, each.rate.high], cells)
    low, middle, high = map(round, ends)
    line[low : high + 1] = [(INTERVAL, ink)] * (high + 1 - low)
    for place in places:
        line[place] = (ROUND, ink)
    line[low], line[high] = ((end, ink) for end in ENDS)
    line[middle] = (MEDIAN, ink + Style(bold=True))
    for number in each.outliers:
        line[places[number]] = (OUTLIER, Style(color="yellow"))
    return Text.assemble(*line, no_wrap=True)


def _axis(scale: Scale, left: int, cells: int) -> Text:
    line = [" "] * (left + cells)
    for label in under_axis("value", scale, cells):
        line[left + label.start : left + label.start + len(label.text)] = label.text
    return Text("".join(line).rstrip(), "dim", no_wrap=True)
