"""Verified presets: a row for each, with its problem or notes below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from distrain.runners import formatting
from distrain.runners.verification.result import VerificationResult, origin_of_limits
from distrain.tui.data.verification_feed import VerificationEntry
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit, total_width
from distrain.tui.widgets.text_pane import TextPane, wrapped

COLUMNS = (
    TableColumn("setup", 26, spare=1, right=False),
    TableColumn("ranks", 5),
    TableColumn("error", 8),
    TableColumn("limit", 8),
    TableColumn("result", 15, right=False),
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
    """Shows the entries of a verification."""

    HELP = (
        "Each preset trains 20 steps. One plain PyTorch process computes the first three, the last "
        "and some random steps in between. Their gradients, weights and buffers are compared. The "
        "error is that of the first difference; without differences, of the tensor that is nearest "
        "to its limit."
    )
    fixed = 1

    def __init__(self) -> None:
        super().__init__("Verification")
        self._entries: Sequence[VerificationEntry] = ()

    def show(self, entries: Sequence[VerificationEntry]) -> None:
        self._entries = entries
        self.border_subtitle = tally(entries)
        self._paint()

    @property
    def entries(self) -> Sequence[VerificationEntry]:
        """Return the entries that are shown."""
        return self._entries

    def _paint(self) -> None:
        self.put(lines(self._entries, self.width))

    @property
    def plain(self) -> str:
        """Return the whole table as text."""
        return "\n".join(line.plain.rstrip() for line in self._lines)


def tally(entries: Sequence[VerificationEntry]) -> str:
    """Return the number of entries by outcome: "2 the same · 1 waiting"."""
    outcomes = [entry.outcome for entry in entries]
    counts = ((outcomes.count(outcome), outcome) for outcome in OUTCOMES)
    return " · ".join(f"{count} {outcome}" for count, outcome in counts if count)


def lines(entries: Sequence[VerificationEntry], width: int) -> list[Text]:
    """Return the header, each entry with its sentences, and where the limits come from."""
    if not entries:
        return [Text("checking which presets can run here …", "dim")]
    columns = columns_that_fit(COLUMNS, width - 16)
    room = max(width - total_width(columns), 8)
    head = Text("preset".ljust(room), "dim", no_wrap=True)
    for column in columns:
        head.append(" ").append_text(align(Text(column.name, "dim"), column))
    found = [head]
    for entry in entries:
        found += [_row(entry, columns, room), *_sentences(entry, width)]
    for text in sorted({entry.result.tolerance for entry in entries} - {""}):
        found += [Text(), *wrapped(origin_of_limits(text), "dim", width)]
    return found


def _row(entry: VerificationEntry, columns: Sequence[TableColumn], room: int) -> Text:
    report = entry.result
    mark, ink = OUTCOMES[entry.outcome]
    _, error, limit = report.figures()
    cells = {
        "setup": Text(report.combination, "dim"),
        "ranks": Text(formatting.count(report.world_size or None)),
        "error": Text(error),
        "limit": Text(limit),
        "result": Text(f"{mark} {entry.outcome}", ink),
    }
    line = Text(report.preset, "bold", no_wrap=True)
    line.truncate(room, overflow="ellipsis", pad=True)
    line = Text.assemble(line)
    for column in columns:
        line.append(" ").append_text(align(cells[column.name], column))
    return line


def _sentences(entry: VerificationEntry, width: int) -> Iterator[Text]:
    report = entry.result
    if entry.state != "done":
        return
    if report.sentence:
        yield from wrapped(report.sentence, OUTCOMES[report.outcome][1], width, INDENT, 0)
    elif nearest := _nearest(report):
        yield from wrapped(nearest, "dim", width, INDENT, 0)
    for text in report.declared:
        yield from wrapped(text, "dim", width, INDENT, 0)


def _nearest(report: VerificationResult) -> str:
    where, *_ = report.figures()
    return "" if where == formatting.MISSING else f"nearest to its limit: {where}"
