"""What commands show of a group: a table of its runs, and which is best."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar, TextIO

from distrain.runners import formatting
from distrain.runners.analysis.best_run import BestRun, best_metric, find_best
from distrain.runners.cli.run_result import EXIT_CODES, describe_error
from distrain.runners.cli.terminal import (
    TextColumn,
    align_columns,
    format_table,
    is_terminal,
    paint,
    print_json,
    print_message,
)
from distrain.runners.cli.views import View
from distrain.runners.config.sweep import varying_settings
from distrain.runners.groups import Group
from distrain.runners.records.snapshot import Follower
from distrain.runners.runs import Run

UPDATE_S = 1.0  # between two updates: the runs need the cores
LONGEST_VALUE = 24  # cells
BEST = "*"


class GroupPresentation:
    """Shows a group as the table of its results so far."""

    stop_requests: ClassVar[int] = 2  # with checkpoints, then at once

    def __init__(self, group: Group) -> None:
        self._group = group

    def view(self, stream: TextIO, every: float, output: TextIO) -> View:
        if is_terminal(stream):
            return GroupPicture(self._group, stream)
        return GroupLines(self._group, stream, every)

    def print_result(self, as_json: bool) -> int:
        if as_json:
            print_json(self.data())
        else:
            print(self.page(), flush=True)
        for run in self._group.runs:
            if error := run.record.state.error:
                text = formatting.single_line(describe_error(error))
                print_message(f"distrain: {run.name or run.id}: {text}")
        return EXIT_CODES.get(self._group.status, 0)

    def page(self) -> str:
        results = GroupResults(self._group)
        columns, rows = results.table()
        group = self._group
        heading = f"{paint(group.status, group.status)}  {paint(group.id, 'bold')}"
        parts = [f"{heading}  {group.reason}", format_table(columns, rows, indent="  ")]
        return "\n".join([*parts, *filter(None, [results.best.sentence]), *_obstacles(group)])

    def data(self) -> dict[str, Any]:
        """Return the summaries of the runs with the settings in which they differ."""
        results = GroupResults(self._group)
        runs = [
            {
                **summary,
                "name": run.name,
                "settings": {key: values[n] for key, values in results.settings.items()},
            }
            for n, (run, summary) in enumerate(zip(results.runs, results.summaries, strict=True))
        ]
        best = [results.runs[n].id for n in results.best.runs]
        return {
            "group_id": self._group.id,
            "status": self._group.status,
            "reason": self._group.reason,
            "metric": results.best.metric or None,
            "best": best,
            "runs": runs,
        }

    def describe_stop(self, now: bool) -> str:
        configs = self._group.live_configs()
        if now:
            how = "end at once"
        elif configs and all(config.saves_at_stop for config in configs):
            how = "stop with a checkpoint"
        elif any(config.is_script for config in configs):
            how = "are asked to stop, or else interrupted as by Ctrl-C"
        else:
            how = "stop; no checkpoint is written where checkpoint.keep is 0"
        return f"its runs {how}; those in the queue never start"

    def notices(self) -> list[str]:
        plans = [run.record.state.plan for run in self._group.runs]
        return [*dict.fromkeys(text for plan in plans if plan for text in plan.notices)]


class GroupResults:
    """The summaries of the runs of a group at one moment, and what follows from them."""

    def __init__(self, group: Group) -> None:
        self.runs = group.runs
        self.summaries = [run.summary() for run in self.runs]
        self.statuses = [run.record.state.current_status for run in self.runs]
        configs = [run.record.config for run in self.runs]
        self.settings = varying_settings(configs)
        names = [run.name or run.id for run in self.runs]
        evaluations = [_metrics(summary) for summary in self.summaries]
        wanted = configs[0].checkpoint  # a script has the defaults
        states = (run.record.state for run in self.runs)
        facts = next((state.facts for state in states if state.facts), None)
        chosen, direction = best_metric(wanted.best, wanted.best_is, facts)
        self.best: BestRun = find_best(
            names,
            evaluations,
            chosen=chosen,
            direction=direction,
            is_live=group.is_live,
        )

    def table(self) -> tuple[list[TextColumn], list[list[str]]]:
        """Return the columns and a line of cells for each run."""
        metric = self.best.metric
        columns = [
            TextColumn(""),
            TextColumn("name"),
            *(TextColumn(key, right=True, drop_order=5) for key in self.settings),
            TextColumn("status"),
            TextColumn(metric or "metric", right=True),
            TextColumn("steps", right=True, drop_order=3),
            TextColumn("samples/s", right=True, drop_order=2),
            TextColumn("duration", right=True, drop_order=4),
            TextColumn("run", drop_order=1),
        ]
        return columns, [
            [
                BEST if n in self.best.runs else "",
                self.runs[n].name,
                *(values[n][:LONGEST_VALUE] for values in self.settings.values()),
                self.statuses[n],
                _format_value(metric, summary),
                formatting.count(summary["steps"]),
                formatting.round_rate(summary["samples_per_s"]),
                formatting.duration(summary["duration_s"]),
                summary["run_id"],
            ]
            for n, summary in enumerate(self.summaries)
        ]


def _metrics(summary: dict[str, Any]) -> dict[str, float | None]:
    return {k: value for k, value in (summary["eval"] or {}).items() if k != "samples"}


def _format_value(metric: str, summary: dict[str, Any]) -> str:
    value = _metrics(summary).get(metric)
    return formatting.MISSING if value is None else formatting.metric_value(metric, value)


class GroupLines:
    """Prints a line when a run changes its status, and the progress of live runs at intervals."""

    interval_s = UPDATE_S

    def __init__(self, group: Group, stream: TextIO, every: float) -> None:
        self._group = group
        self._stream = stream
        self._every = every
        self._followers = {run.id: Follower(run.record) for run in group.runs}
        self._printed: dict[str, tuple[str, str]] = {}  # status and reason of each run
        self._next_progress = 0.0

    def update(self) -> bool:
        is_live = self._group.is_live
        for run in self._group.runs:
            state = run.record.state
            status, reason = state.current_status, state.reason
            if self._printed.get(run.id) != (status, reason):
                self._printed[run.id] = status, reason
                self._print(run, status, state.obstacle or reason or _waiting(run))
        if is_live and time.monotonic() >= self._next_progress:
            self._next_progress = time.monotonic() + self._every
            self._print_progress()
        return is_live

    def _print_progress(self) -> None:
        from distrain.runners.cli.run_lines import format_progress

        for run in self._group.runs:
            status, _ = self._printed[run.id]
            if status == "running":
                follower = self._followers[run.id]
                follower.new_events(kinds=())
                if text := format_progress(follower.snapshot()):
                    self._print(run, "progress", text)

    def _print(self, run: Run, event: str, text: str) -> None:
        now = formatting.time_of_day(time.time())
        line = f"{now}  {event:<10}  {run.name or run.id}  {formatting.single_line(text)}"
        print(line.rstrip(), file=self._stream, flush=True)

    def message(self, text: str) -> None:
        print(f"{formatting.time_of_day(time.time())}  distrain    {text}", file=self._stream)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _obstacles(group: Group) -> list[str]:
    """Return a line for each live run that makes no progress: those in the queue wait for it."""
    found = ((run.name or run.id, run.record.state.obstacle) for run in group.runs)
    return [f"{name}: {formatting.single_line(text)}" for name, text in found if text]


def _waiting(run: Run) -> str:
    return "; ".join(run.record.state.waiting_for)


class GroupPicture:
    """Repaints the table of results so far, on a terminal."""

    interval_s = UPDATE_S

    def __init__(self, group: Group, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._group = group
        self._console = Console(file=stream, highlight=False)
        self._area = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._area.start()

    def update(self) -> bool:
        is_live = self._group.is_live
        self._area.update(self._text(is_live), refresh=True)
        return is_live

    def _text(self, is_live: bool) -> Any:
        from rich.text import Text

        if not is_live:  # the result follows
            return Text()
        results = GroupResults(self._group)
        lines: Sequence[str] = align_columns(*results.table(), self._console.width)
        shown = [f"{self._group.id}  {self._group.reason}", *lines, results.best.sentence]
        shown += _obstacles(self._group)
        queued = next((run for run in self._group.runs if run.status == "queued"), None)
        if queued and (reason := _waiting(queued)):
            shown.append(f"{queued.name} is waiting: {reason}")
        return Text("\n".join(shown), no_wrap=True, overflow="ellipsis")

    def message(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, "yellow"))

    def close(self) -> None:
        self._area.stop()
