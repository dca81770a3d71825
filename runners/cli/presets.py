"""`presets`: list, show, save and check presets."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from distrain.runners import formatting, runs
from distrain.runners.checks import check
from distrain.runners.cli.config_changes import config_changes
from distrain.runners.cli.consent import ensure_trust
from distrain.runners.cli.error_text import format_error
from distrain.runners.cli.terminal import TextColumn, format_table, print_json, print_message
from distrain.runners.config import presets
from distrain.runners.config.plan import describe_setup
from distrain.runners.config.presets import Preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError, RunNotFoundError
from distrain.runners.system.files import read_named

COLUMNS = (
    TextColumn("preset"),
    TextColumn("from", drop_order=3),
    TextColumn("setup"),
    TextColumn("task", drop_order=2),
    TextColumn("description", drop_order=1, least=30),
)


def execute(arguments: Namespace) -> int:
    """Do one of list, show, save, validate, path."""
    actions = {"list": _list, "show": _show, "save": _save, "validate": _validate, "path": _path}
    return actions[arguments.action or "list"](arguments)


def _list(arguments: Namespace) -> int:
    listing = presets.listing()
    if arguments.json:
        print_json([_preset_data(preset) for preset in listing])
        return 0
    print(format_table(COLUMNS, map(_format_preset, listing)))
    print_message("`distrain presets show NAME` prints one, `distrain run NAME` starts it", "dim")
    return 0


def _preset_data(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "origin": preset.origin,
        "path": preset.path,
        "hides_built_in": preset.hides_built_in,
        "problem": preset.problem or None,
        "config": preset.config.to_dict() if preset.config else None,
    }


def _format_preset(preset: Preset) -> list[str]:
    origin = "yours, hides built-in" if preset.hides_built_in else preset.origin
    config = preset.config
    if config is None:
        return [preset.name, origin, "cannot be used", "", preset.problem.splitlines()[-1]]
    return [
        preset.name,
        origin,
        " ".join(describe_setup(config, None)),
        config.workload,
        formatting.single_line(config.description),
    ]


def _show(arguments: Namespace) -> int:
    path, origin = presets.locate(arguments.preset)
    config, _ = presets.find(arguments.preset)
    print_message(f"{origin}: {path}", "dim")
    text = config.to_toml() if arguments.full else read_named(path)
    if sys.stdout.isatty():  # TOML allows characters that control a terminal
        text = formatting.printable_lines(text)
    print(text.rstrip("\n"))
    return 0


def _save(arguments: Namespace) -> int:
    source, base = _load_source(arguments.source, arguments.runs_dir, arguments.trust)
    config = base.with_changes(config_changes(arguments))
    if source != arguments.name:
        config = presets.describe(config, source, base)
    path = presets.save_preset(arguments.name, config, force=arguments.force)
    print(path)
    return 0


def _load_source(name: str, runs_dir: str | None, is_trusted: bool) -> tuple[str, RunConfig]:
    """Return what to call the source, and the config of this preset or else of this run.

    The checkpoint that a run started from is left out. Raises UntrustedError: a preset of the
    user's own runs without a question.
    """
    try:
        return Path(name).stem, presets.load_preset(name)
    except ConfigError as error:
        try:
            run = runs.find(name, runs_dir)
        except RunNotFoundError:
            raise error from None
        ensure_trust(run, is_trusted)
        changes: dict[str, Any] = {"checkpoint.load": None}
        config = run.record.config
        if config.is_script and config.code_dir is None:  # the preset will be in another folder
            changes["code_dir"] = run.launched_from
        return f"run {run.id}", config.with_changes(changes)


def _validate(arguments: Namespace) -> int:
    """Return exit code 2 if a preset is invalid; one that only cannot run here is valid."""
    code = 0
    for name in arguments.presets or presets.names():
        try:
            config = presets.load_preset(name)
        except ConfigError as error:
            print_message(format_error(error))
            code = error.exit_code
            continue
        problems = _find_problems_here(config)
        print(f"{name}: valid, cannot run here" if problems else f"{name}: valid")
        for key, text in problems:
            print_message(f"{name}: {key}: {text}", "warning")
    return code


def _find_problems_here(config: RunConfig) -> list[tuple[str, str]]:
    try:
        check(config)
    except ConfigError as error:
        return error.problems
    return []


def _path(arguments: Namespace) -> int:
    if arguments.preset:
        path, _ = presets.locate(arguments.preset)
    else:
        path = presets.user_folder()
    print(path)
    return 0
