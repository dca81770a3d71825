"""The first line of the table of runs: how many there are, and where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text
from textual.widgets import Static

from distrain.runners import formatting
from distrain.tui.data.run_rows import BENCH, RunRow


class RunsHeader(Static):
    """Shows the numbers of runs that are listed, live and marked, and the runs folder."""

    DEFAULT_CSS = "RunsHeader { height: 1; background: $panel; }"

    def show(
        self,
        rows: Sequence[RunRow],
        shown: int,
        marked: int,
        runs_dir: Path,
        more: Sequence[str] = (),
    ) -> None:
        """Show the numbers of runs. `rows` are all runs, of which the table shows `shown`; `more`
        are further facts on the table.
        """
        width = self.app.size.width
        parts = [*_counts(rows, shown, marked), *filter(None, more)]
        line = Text.assemble((" distrain", "bold"), f"  {' · '.join(parts)}")
        line.append(f"  {runs_dir}".rjust(max(width - line.cell_len - 1, 0)), "dim")
        line.truncate(width, overflow="ellipsis")
        self.update(line)


def _counts(rows: Sequence[RunRow], shown: int, marked: int) -> list[str]:
    total = formatting.plural(len(rows), "run")
    if any(row.kind == BENCH for row in rows):
        total = "1 bench" if len(rows) == 1 else f"{len(rows):,} runs and benches"
    counts = [f"{shown:,} of {total}" if shown < len(rows) else total]
    if live := sum(row.live for row in rows):
        counts.append(f"{live:,} live")
    if marked:
        counts.append(f"{marked:,} marked")
    return counts
