"""Measure how fast a record opens in which a script has logged 1,000 names a million times each.

Claim: it opens in 0.5 s, and as fast as one with a hundredth of the values. A script that logs in
each millisecond leaves a row per window of 0.1 s: the number, sum, minimum, maximum and last of 100
values. So a million values of a name are 10,000 rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.fresh_reads import Figures, in_milliseconds, run
from benchmarks.report import Table
from distrain.runners.cli import run_page
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import Logged, LoggedStats
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.writer import RecordWriter
from distrain.tui.data.chart_catalog import LOGGED_CHART
from distrain.tui.data.chart_source import ChartView
from distrain.tui.data.run_feed import RunFeed

VALUES_PER_ROW = 100
NAMES = 1000
VALUES = [10_000, 1_000_000]  # of each name
ROWS_PER_COMMIT = 5


def build(runs: Path, values: int) -> Path:
    """Write a record of a script on one rank, as the supervisor would."""
    config = RunConfig.from_dict({"script": {"path": "train.py"}, "devices": "cpu:1"})
    folder = create_run(runs, config, plan=plan_here(config), word=f"values-{values}")
    writer = RecordWriter(folder)
    for row in range(1, values // VALUES_PER_ROW + 1):
        writer.add(_logged(row))
        if row % ROWS_PER_COMMIT == 0:
            writer.commit()
    writer.set_state(status="completed")
    writer.close()
    return folder


def _logged(row: int) -> Logged:
    low = 1.0 / row
    return Logged(
        time=1.8e9 + row * 0.1,
        rank=0,
        step=row * VALUES_PER_ROW,
        values={
            f"layer{number}/norm": LoggedStats(
                VALUES_PER_ROW, VALUES_PER_ROW * (low + number), low, low + 2 * number, low + number
            )
            for number in range(NAMES)
        },
    )


def measure(folder: Path) -> Figures:
    """Return the seconds that each view takes, each with a record that was just opened."""
    return {
        "run screen": _time(folder, _read_screen),
        "show": _time(folder, run_page.format_page),
        "show --json": _time(folder, run_page.collect_data),
    }


def _read_screen(record: Record) -> None:
    """Read what the run screen shows first, and every name for its picker of metrics."""
    names = [*record.logged()]
    plots = tuple(LOGGED_CHART + name for name in (*names[:2], *names[-2:]))
    frame = RunFeed(record).read(ChartView(plots=plots))
    assert len(frame.snapshot.logged_names) == len(names)
    assert all(len(chart.lines[0].x) for chart in frame.charts.values())


def _time(folder: Path, read: Callable[[Record], Any]) -> float:
    begin = time.perf_counter()
    with Record(folder) as record:
        read(record)
    return time.perf_counter() - begin


def tabulate(found: Mapping[int, list[Figures]]) -> Table:
    base = next(iter(found.values()))
    lines = []
    for view in base[0]:
        first = median(each[view] for each in base)
        for values, figures in found.items():
            seconds = [each[view] for each in figures]
            rows = f"{values // VALUES_PER_ROW:,}"
            ratio = f"{median(seconds) / first:.2f}"
            lines.append((view, f"{values:,}", rows, *in_milliseconds(seconds), ratio))
    headers = ("view", "values per name", "rows per name", "ms", "range", "ratio")
    title = f"open: {NAMES:,} names of a script, median of {len(base)} fresh processes"
    return Table(title, headers, lines)


if __name__ == "__main__":
    run("benchmarks.open_logged", __doc__, VALUES, build, measure, tabulate)
