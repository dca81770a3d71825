"""`run`: start a run of a preset, or of a program of the user's."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from distrain.runners import formatting, runs
from distrain.runners.checks import check
from distrain.runners.cli.config_changes import config_changes
from distrain.runners.cli.parser import parse, refuse_program
from distrain.runners.cli.start import start_session
from distrain.runners.cli.terminal import print_message
from distrain.runners.config import presets
from distrain.runners.config.command_line import program_config
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.client import ServerAddresses
from distrain.runners.session import runs_folder


def execute(arguments: Namespace) -> int:
    """Start the program or preset, or join the run that another process of it has started."""
    config = _config(arguments)
    stem = Path(arguments.preset or config.script.name).stem
    name = arguments.name or formatting.single_line(stem)
    if arguments.sweep:
        from distrain.runners.cli.run_sweep import run_sweep

        return run_sweep(config, arguments, arguments.name or f"{name}-sweep")
    if config.launcher == "env" and os.environ.get("RANK", "0") != "0" and not arguments.dry_run:
        from distrain.runners.cli import join

        return join.join_as_rank(config, arguments.runs_dir)
    if config.dist.node_rank and not arguments.dry_run:
        from distrain.runners.cli import join

        return join.join_as_configured(config, arguments.runs_dir)
    if arguments.dry_run:
        return _print_launch(config, arguments.runs_dir)
    return start_session(
        arguments,
        lambda: runs.launch(config, name=name, runs_dir=arguments.runs_dir, queue=arguments.queue),
    )


def script_of_words(words: Sequence[str]) -> RunConfig:
    """Return the config of a script, from the words after `distrain run`. Raises ConfigError."""
    # --help prints and exits, which is not for the caller.
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        arguments = parse(["run", *words])
        if arguments.program:
            return program_config(arguments.program, config_changes(arguments))
        if arguments.preset and arguments.preset.endswith(".toml"):
            raise ConfigError(
                f"{arguments.preset} is a preset: type its path alone, and change it in the form"
            )
    raise ConfigError("name a script (.py), a path that contains a slash, or -m and a module")


def _config(arguments: Namespace) -> RunConfig:
    if arguments.no_auto:
        arguments.changes.append("script.auto=false")
    if arguments.program:
        return program_config(arguments.program, config_changes(arguments))
    if arguments.preset:
        refuse_program([arguments.preset])
        return presets.load_preset(arguments.preset, config_changes(arguments))
    raise ConfigError("name a preset, or a script with its arguments; see `distrain run --help`")


def _print_launch(config: RunConfig, runs_dir: str | None) -> int:
    """Print what would be started, with placeholders for the run's folder and address."""
    from distrain.runners.launchers.command import launcher_command
    from distrain.runners.launchers.slurm.script import batch_script

    plan = check(config)
    for notice in plan.notices:
        print_message(f"note: {notice}", "warning")
    if config.launcher == "slurm":
        folder = runs_folder(runs_dir) / "RUN"
        print(batch_script(config, plan, folder, ServerAddresses("", "tcp:HOST:PORT")), end="")
    else:
        print(shlex.join(launcher_command(config, plan)))
    if config.is_script:
        words = [*["python"] * config.script.is_python, *config.script.words]
        print_message(f"each rank runs: {formatting.shell_words(words)}", "dim")
    return 0
