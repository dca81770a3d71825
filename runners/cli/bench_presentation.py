"""What commands show of a bench."""

from __future__ import annotations

import sys
from typing import Any, ClassVar, TextIO

from msgspec import to_builtins

from distrain.runners import formatting
from distrain.runners.analysis.comparison import descriptions, sentences
from distrain.runners.analysis.comparison.model import Comparison
from distrain.runners.bench.estimate import estimate_remaining
from distrain.runners.bench.handle import Bench
from distrain.runners.bench.progress import describe_current_run, describe_remaining
from distrain.runners.bench.state import BenchState
from distrain.runners.cli.run_result import EXIT_CODES
from distrain.runners.cli.terminal import (
    TextColumn,
    align_columns,
    format_fields,
    is_terminal,
    paint,
    print_message,
)
from distrain.runners.cli.views import View

UPDATE_S = 1.0  # between two updates: the runs need the cores


class BenchPresentation:
    """Shows a bench as its results so far."""

    stop_requests: ClassVar[int] = 1

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def view(self, stream: TextIO, every: float, output: TextIO) -> View:
        if is_terminal(stream):
            return BenchPicture(self._bench, stream)
        return BenchLines(self._bench, stream)

    def print_result(self, as_json: bool) -> int:
        from distrain.runners.cli.comparison_page import format_json  # numpy is slow to load

        state = self._bench.state
        comparison = self._bench.comparison()
        if as_json:
            sys.stdout.write(format_json(comparison))
        else:
            self._print_comparison(comparison)
        print_message(f"{paint(state.status, state.status, sys.stderr)}: {state.reason}")
        print_message(f"`distrain compare {self._bench.id}` shows details", "dim")
        return EXIT_CODES.get(state.status, 1)

    def _print_comparison(self, comparison: Comparison) -> None:
        unequal = sentences.describe_unequal(comparison)
        if unequal:
            print(paint(unequal, "warning"))
        print(*format_results(comparison), *comparison.results, sep="\n", flush=True)
        if unchecked := sentences.describe_unchecked(comparison.unchecked):
            print_message(unchecked, "warning")
        for warning in comparison.warnings:
            print_message(f"note: {warning}", "warning")

    def page(self) -> str:
        from distrain.runners.cli.comparison_page import format_comparison

        bench = self._bench
        state = bench.state
        starts = formatting.plural(len(state.started), "start")
        heading = f"{paint(state.status, state.status)}  {paint(bench.id, 'bold')}"
        fields = [
            ("name", bench.name),
            ("reason", state.reason),
            ("rounds", f"{state.rounds} of at most {bench.definition.rules.repeats}"),
            ("times", f"created {formatting.date(state.created)}, {starts}"),
            ("notes", bench.meta.notes),
            ("folder", str(bench.dir)),
        ]
        return f"{heading}\n{format_fields(fields)}\n\n{format_comparison(bench.comparison())}"

    def data(self) -> dict[str, Any]:
        bench = self._bench
        return {**to_builtins(bench.state), "name": bench.name, "dir": str(bench.dir)}

    def describe_stop(self, now: bool) -> str:
        return f"its current run is ended; `distrain resume {self._bench.id}` continues it later"

    def notices(self) -> list[str]:
        return []


def format_results(comparison: Comparison, width: int | None = None) -> list[str]:
    """Return a header and a line for each candidate, at most `width` characters long."""
    rows = [descriptions.result_cells(each, comparison) for each in comparison.candidates]
    columns = (
        TextColumn("candidate"),
        TextColumn("rounds", right=True, drop_order=2),
        TextColumn(comparison.unit, right=True),
        TextColumn("95 % interval", drop_order=1),
        TextColumn("ratio", right=True),
        TextColumn("95 % interval"),
    )
    return align_columns(columns, rows, width)


def format_progress(bench: Bench, state: BenchState) -> str:
    """Return the current round and run, and the remaining time; for an ended bench why it ended."""
    if not state.live or state.current is None:
        return f"{state.status}: {state.reason}" if state.reason else state.status
    current = describe_current_run(bench.definition, state)
    remaining = describe_remaining(estimate_remaining(bench.definition, state))
    return "  ".join(filter(None, [state.status, current, remaining]))


class BenchLines:
    """Prints a line for each measurement, for pipes."""

    interval_s = UPDATE_S

    def __init__(self, bench: Bench, stream: TextIO) -> None:
        self._bench = bench
        self._stream = stream
        self._printed = 0  # number of measurements
        self._has_obstacle = False

    def update(self) -> bool:
        state = self._bench.state
        for measurement in state.measurements[self._printed :]:
            unit = measurement.unit
            self.message(
                f"round {measurement.round}  {measurement.candidate}  "
                f"{formatting.rate(measurement.speed(unit), unit)} over "
                f"{formatting.duration(measurement.seconds)} after a warm-up of "
                f"{formatting.duration(measurement.warmup_s)}"
            )
        self._printed = len(state.measurements)
        obstacle = self._bench.obstacle
        if obstacle and not self._has_obstacle:
            self.message(obstacle)
        self._has_obstacle = bool(obstacle)
        return state.live

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class BenchPicture:
    """Repaints the results so far, on a terminal."""

    interval_s = UPDATE_S

    def __init__(self, bench: Bench, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._bench = bench
        self._console = Console(file=stream, highlight=False)
        self._area = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._area.start()

    def update(self) -> bool:
        from rich.text import Text

        state = self._bench.state
        lines = [format_progress(self._bench, state), self._bench.obstacle]
        lines = [*filter(None, lines)]
        if state.measurements:
            lines += format_results(self._bench.comparison(), self._console.width)
        if not state.live:  # the result follows
            lines = []
        self._area.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)
        return state.live

    def message(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, "yellow"))

    def close(self) -> None:
        self._area.stop()
