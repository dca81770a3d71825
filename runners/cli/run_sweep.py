"""`run --sweep`: queue a run for each combination of values, as one group."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

from distrain.runners import formatting
from distrain.runners.checks import check
from distrain.runners.cli.config_changes import config_changes
from distrain.runners.cli.run_result import EXIT_CODES
from distrain.runners.cli.signals import Signals
from distrain.runners.cli.start import detach
from distrain.runners.cli.terminal import print_json, print_message
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.sweep import Axis, SweepRun, combine, parse_axis
from distrain.runners.errors import ConfigError
from distrain.runners.groups import Group, launch_group
from distrain.runners.runs import Run


class _InterruptedError(Exception):
    """Ctrl-C while the runs were being queued."""


def run_sweep(config: RunConfig, arguments: Namespace, word: str) -> int:
    """Queue the runs and follow them, or print their ids with --detach."""
    if config.launcher == "env" or config.dist.node_rank:
        raise ConfigError([("launcher", "a sweep starts the processes of its runs itself")])
    planned = combine(config, _axes(arguments), check)
    if arguments.dry_run:
        _print_plan(planned)
        return 0
    count = formatting.plural(len(planned), "run")
    with Signals() as signals:

        def announce(run: Run) -> None:
            if signals.interrupts:
                raise _InterruptedError
            _tell(f"queued  {run.name}  {run.id}", "dim")

        try:
            group = launch_group(planned, word, runs_dir=arguments.runs_dir, on_launched=announce)
        except _InterruptedError:
            print_message(f"the runs of {word} that were queued have been stopped")
            return EXIT_CODES["stopped"]
        _tell(f"{count} in group {group.id}; runs that share devices wait for each other")
        if not arguments.detach:
            from distrain.runners.cli.follow import follow  # loaded while the ranks start

            return follow(group, signals, stream=sys.stderr, can_stop=True, as_json=arguments.json)
        if not detach(group, signals):
            return EXIT_CODES["stopped"]
    _print_start(group, arguments.json)
    return 0


def _tell(text: str, style: str = "") -> None:
    """Print a message. If the terminal or the reader is gone, the sweep is queued all the same."""
    with suppress(OSError):
        print_message(text, style)


def _axes(arguments: Namespace) -> list[Axis]:
    """Return the axes of all --sweep. Raises ConfigError with every problem."""
    axes = []
    problems: list[tuple[str, str]] = []
    for text in arguments.sweep:
        try:
            axes.append(parse_axis(text))
        except ConfigError as error:
            problems += error.problems
    fixed = config_changes(arguments)
    problems += [
        (axis.key, "is set to one value and swept; leave one of them out")
        for axis in axes
        if axis.key in fixed
    ]
    if problems:
        raise ConfigError(problems)
    return axes


def _print_plan(planned: Sequence[SweepRun]) -> None:
    for run in planned:
        print(run.name)
    print_message(f"{formatting.plural(len(planned), 'run')} would be queued", "dim")


def _print_start(group: Group, as_json: bool) -> None:
    if as_json:
        started = [{"run_id": run.id, "name": run.name, "dir": str(run.dir)} for run in group.runs]
        print_json({"group_id": group.id, "runs": started})
    else:
        print(*(run.id for run in group.runs), sep="\n")
