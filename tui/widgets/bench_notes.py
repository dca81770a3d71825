"""The results of a bench in sentences: comparisons, warnings, equal and differing settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from distrain.runners import formatting
from distrain.runners.analysis.comparison import descriptions, sentences
from distrain.runners.analysis.comparison.model import Comparison, Difference
from distrain.tui import marks
from distrain.tui.widgets.text_pane import TextPane, wrapped

WARNING = "▲"


class BenchNotes(TextPane):
    """Shows the results of a comparison in sentences, and the settings of its candidates."""

    HELP = (
        "What the measurements show so far, what limits them, and which settings of the "
        "candidates differ or are equal."
    )

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self._comparison: Comparison | None = None

    def show(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._paint()

    def _paint(self) -> None:
        if self._comparison is not None:
            self.put(list(notes(self._comparison, self.width)))


def notes(comparison: Comparison, width: int) -> Iterator[Text]:
    """Yield lines of at most `width` cells: results, warnings, settings."""
    for result in comparison.results:
        yield from wrapped(result, "bold", width)
    for warning in comparison.warnings:
        yield from wrapped(f"{WARNING} {warning}", "yellow", width)
    yield from settings(comparison, width)


def settings(comparison: Comparison, width: int) -> Iterator[Text]:
    """Yield differences that make the comparison unfair, then a table of others, then equals."""
    names = [candidate.name for candidate in comparison.candidates]
    fair = []
    for difference in comparison.differences:
        if difference.fair:
            fair.append(difference)
        else:
            values = _values(difference, names, width)
            yield from wrapped(f"{WARNING} UNEQUAL: {values}", "bold yellow", width)
    if table := _table(fair, names):
        if table[0].cell_len <= width:
            yield from table
        else:
            for difference in fair:
                yield from wrapped(f"differs: {_values(difference, names, width)}", "", width)
    if unchecked := sentences.describe_unchecked(comparison.unchecked):
        yield from wrapped(f"{WARNING} {unchecked}", "yellow", width)
    if comparison.equal:
        equal = descriptions.format_settings(comparison.equal)
        yield from wrapped(f"equal: {equal}", "dim", width)


def _table(differences: Sequence[Difference], names: Sequence[str]) -> list[Text]:
    """Return a row per candidate and a column per setting; empty without differences."""
    if not differences:
        return []
    columns = [["candidate", *names]]
    columns += [[each.key, *map(_display, each.values)] for each in differences]
    widths = [max(map(len, column)) for column in columns]
    rows = []
    for number, cells in enumerate(zip(*columns, strict=True)):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        rows.append(Text("  ".join(padded), "" if number else "dim", no_wrap=True))
    return rows


def _values(difference: Difference, names: Sequence[str], width: int) -> str:
    """Return a setting with the value of each candidate, by name or, if that is long, by mark."""
    text = descriptions.format_difference(difference, names)
    if len(text) <= width:
        return text
    shapes: dict[str, str] = {}
    for mark, value in zip(marks.first_marks(len(names)), difference.values, strict=True):
        shapes[_display(value)] = shapes.get(_display(value), "") + mark.shape
    return f"{difference.key}: " + ", ".join(f"{shape} {value}" for value, shape in shapes.items())


def _display(value: str | None) -> str:
    return formatting.MISSING if value is None else value
