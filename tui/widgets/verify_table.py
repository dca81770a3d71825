"""Verified presets: a line for each, with what is to be said of it below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from runners import words
from runners.verification.report import Report, origin_of_limits
from tui.data.verifying import Entry
from tui.widgets.columns import Column, aligned, fitting, taken
from tui.widgets.text_pane import TextPane, wrapped

COLUMNS = (
    Column("how", 26, spare=1, right=False),
    Column("ranks", 5),
    Column("error", 8),
    Column("allowed", 8),
    Column("verdict", 15, right=False),
)
# The mark and the colour of each outcome.
OUTCOMES = {
    "waiting": ("◌", "dim"),
    "verifying": ("●", "cyan"),
    "the same": ("✔", "green"),
    "differs": ("✘", "red"),
    "could not run": ("■", "yellow"),
}
INDENT = 4


class VerifyTable(TextPane):
    """`show` gives it the entries."""

    HELP = (
        "Each preset trains three steps as it always does, and one plain process does the same "
        "steps; gradients, weights and buffers are compared after each. The error is that of the "
        "first difference or, where there is none, of the tensor that is nearest to its limit."
    )
    fixed = 1

    def __init__(self) -> None:
        super().__init__("verification")
        self._entries: Sequence[Entry] = ()

    def show(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self.border_subtitle = tally(entries)
        self._paint()

    def _paint(self) -> None:
        self.put(lines(self._entries, self.width))

    @property
    def plain(self) -> str:
        """All of it, as text."""
        return "\n".join(line.plain.rstrip() for line in self._lines)


def tally(entries: Sequence[Entry]) -> str:
    """How many there are of each outcome: "2 the same · 1 waiting"."""
    outcomes = [entry.outcome for entry in entries]
    counts = ((outcomes.count(outcome), outcome) for outcome in OUTCOMES)
    return " · ".join(f"{count} {outcome}" for count, outcome in counts if count)


def lines(entries: Sequence[Entry], width: int) -> list[Text]:
    """The head, each entry with its sentences, and where the limits come from."""
    if not entries:
        return [Text("looking which presets can run here …", "dim")]
    columns = fitting(COLUMNS, width - 16)
    room = max(width - taken(columns), 8)
    head = Text("preset".ljust(room), "dim", no_wrap=True)
    for column in columns:
        head.append(" ").append_text(aligned(Text(column.name, "dim"), column))
    found = [head]
    for entry in entries:
        found += [_row(entry, columns, room), *_sentences(entry, width)]
    for text in sorted({entry.report.tolerance for entry in entries} - {""}):
        found += [Text(), *wrapped(origin_of_limits(text), "dim", width)]
    return found


def _row(entry: Entry, columns: Sequence[Column], room: int) -> Text:
    report, (mark, ink) = entry.report, OUTCOMES[entry.outcome]
    _, error, allowed = report.figures()
    cells = {
        "how": Text(report.combination, "dim"),
        "ranks": Text(words.count(report.world_size or None)),
        "error": Text(error),
        "allowed": Text(allowed),
        "verdict": Text(f"{mark} {entry.outcome}", ink),
    }
    line = Text(report.preset, "bold", no_wrap=True)
    line.truncate(room, overflow="ellipsis", pad=True)
    line = Text.assemble(line)
    for column in columns:
        line.append(" ").append_text(aligned(cells[column.name], column))
    return line


def _sentences(entry: Entry, width: int) -> Iterator[Text]:
    report = entry.report
    if entry.state != "done":
        return
    if report.sentence:
        yield from wrapped(report.sentence, OUTCOMES[report.outcome][1], width, INDENT, 0)
    elif nearest := _nearest(report):
        yield from wrapped(nearest, "dim", width, INDENT, 0)
    for text in report.declared:
        yield from wrapped(text, "dim", width, INDENT, 0)


def _nearest(report: Report) -> str:
    where, *_ = report.figures()
    return "" if where == words.MISSING else f"nearest to its limit: {where}"
