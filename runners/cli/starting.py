"""`run`, `resume` and `rerun`: start a run, then only look on."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from runners import presets, runs
from runners.bench import Bench
from runners.cli.ending import CODES
from runners.cli.signals import Signals
from runners.cli.text import print_json, say
from runners.config import RunConfig, parse_assignment, parse_devices
from runners.connecting import Endpoint
from runners.errors import ConfigError
from runners.finding import find


def run(arguments: Namespace) -> int:
    """Start a preset."""
    config = presets.load_preset(arguments.preset, changes(arguments))
    if config.launcher == "env" and os.environ.get("RANK", "0") != "0" and not arguments.dry_run:
        from runners.cli import joining

        return joining.as_task(config)
    if config.dist.node_rank:
        from runners.cli import joining

        return joining.of_config(config)
    name = arguments.name or Path(arguments.preset).stem
    if arguments.dry_run:
        return _shown(config, arguments)
    return _started(
        arguments,
        lambda: runs.launch(config, name=name, runs_dir=arguments.runs_dir, queue=arguments.queue),
    )


def _shown(config: RunConfig, arguments: Namespace) -> int:
    """Print what would be started; where it would report is not known before."""
    from runners import launchers
    from runners.slurm.script import batch_script

    plan = runs.check(config)
    for notice in plan.notices:
        say(f"note: {notice}", "warning")
    if config.launcher == "slurm":
        folder = runs.runs_folder(arguments.runs_dir) / "RUN"
        print(batch_script(config, plan, folder, Endpoint("", "tcp:HOST:PORT")), end="")
    else:
        print(shlex.join(launchers.command(config, plan)))
    return 0


def resume(arguments: Namespace) -> int:
    """Go on from the last checkpoint of a run."""
    before, wanted = find(arguments.run, arguments.runs_dir), changes(arguments)
    if isinstance(before, Bench):
        from runners.cli import benching

        if wanted or arguments.name:
            raise ConfigError("a bench goes on as it was defined; rerun takes changes")
        return benching.started(arguments, partial(before.resume, queue=arguments.queue or None))
    return _started(arguments, lambda: before.resume(wanted, arguments.name, queue=arguments.queue))


def rerun(arguments: Namespace) -> int:
    """Start the config of a run again."""
    before, wanted = find(arguments.run, arguments.runs_dir), changes(arguments)
    if isinstance(before, Bench):
        from runners.cli import benching

        queue = arguments.queue or None
        once_more = partial(before.rerun, wanted, arguments.name, queue=queue)
        return benching.started(arguments, once_more)
    return _started(arguments, lambda: before.rerun(wanted, arguments.name, queue=arguments.queue))


def changes(arguments: Namespace) -> dict[str, Any]:
    """Dotted keys of all --set, and of --devices; raises ConfigError with every problem."""
    found: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for text in arguments.changes:
        try:
            key, value = parse_assignment(text)
            found[key] = value
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    if getattr(arguments, "devices", None) is not None:
        found["devices"] = parse_devices(arguments.devices)
    return found


def _started(arguments: Namespace, start: Callable[[], runs.Run]) -> int:
    # From before the launch on: a Ctrl-C in its first moments must stop the run, not orphan it.
    with Signals() as signals:
        started = start()
        if not arguments.detach:
            from runners.cli.following import follow  # while the ranks start, not before

            return follow(started, signals, stops=True, as_json=arguments.json)
    if signals.interrupts:
        started.stop(now=True)
        say(f"stopped {started.id} before it was left alone")
        return CODES["stopped"]
    plan = started.record.state.plan
    for notice in plan.notices if plan else ():
        say(f"note: {notice}", "warning")
    if arguments.json:
        print_json({"run_id": started.id, "dir": str(started.record.dir)})
    else:
        print(started.id)
    return 0
