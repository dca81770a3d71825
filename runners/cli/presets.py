"""`presets` and `schema`: configurations by name."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from runners import presets as library
from runners import runs, words
from runners.cli import complaint
from runners.cli.starting import changes
from runners.cli.text import Column, print_json, say, table
from runners.config import RunConfig, json_schema
from runners.errors import ConfigError, RunNotFoundError

COLUMNS = (
    Column("preset"),
    Column("from", spare=3),
    Column("how"),
    Column("what", spare=2),
    Column("description", spare=1),
)


def presets(arguments: Namespace) -> int:
    """One of list, show, save, validate, path."""
    actions = {"list": _list, "show": _show, "save": _save, "validate": _validate, "path": _path}
    return actions[arguments.action or "list"](arguments)


def schema(_: Namespace) -> int:
    """Print the JSON Schema of a preset."""
    print_json(json_schema())
    return 0


def _list(arguments: Namespace) -> int:
    listing = library.listing()
    if arguments.json:
        print_json([_plain(preset) for preset in listing])
        return 0
    print(table(COLUMNS, map(_cells, listing)))
    say("`distrain presets show NAME` prints one, `distrain run NAME` starts it", "dim")
    return 0


def _plain(preset: library.Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "origin": preset.origin,
        "path": preset.path,
        "hides_built_in": preset.hides_built_in,
        "problem": preset.problem or None,
        "config": preset.config.to_dict() if preset.config else None,
    }


def _cells(preset: library.Preset) -> list[str]:
    origin = "yours, hides built-in" if preset.hides_built_in else preset.origin
    config = preset.config
    if config is None:
        return [preset.name, origin, "cannot be used", "", preset.problem.splitlines()[-1]]
    return [
        preset.name,
        origin,
        f"{config.strategy} {config.launcher} {config.precision}",
        f"{config.model.name} on {config.data.name}",
        words.line(config.description),
    ]


def _show(arguments: Namespace) -> int:
    path, origin = library.locate(arguments.preset)
    config, _ = library.find(arguments.preset)
    say(f"{origin}: {path}", "dim")
    text = config.to_toml() if arguments.full else path.read_text(encoding="utf-8")
    print(text.rstrip("\n"))
    return 0


def _save(arguments: Namespace) -> int:
    source, base = _source(arguments.source, arguments.runs_dir)
    config = base.with_changes(changes(arguments))
    if source != arguments.name:
        config = library.described(config, source, base)
    path = library.save_preset(arguments.name, config, force=arguments.force)
    print(path)
    return 0


def _source(name: str, runs_dir: str | None) -> tuple[str, RunConfig]:
    """The config of a preset, else of a run, without what belongs to that run only; and what to
    call it.
    """
    try:
        return Path(name).stem, library.load_preset(name)
    except ConfigError as error:
        try:
            run = runs.find(name, runs_dir)
        except RunNotFoundError:
            raise error from None
        return f"run {run.id}", run.record.config.with_changes({"checkpoint.load": None})


def _validate(arguments: Namespace) -> int:
    """Exit code 2 where a preset is invalid; what only cannot run here is said, no more."""
    code = 0
    for name in arguments.presets or library.names():
        try:
            config = library.load_preset(name)
        except ConfigError as error:
            say(complaint(error))
            code = error.exit_code
            continue
        reasons = _not_here(config)
        print(f"{name}: valid" + (", cannot run here" if reasons else ""))
        for key, text in reasons:
            say(f"{name}: {key}: {text}", "warning")
    return code


def _not_here(config: RunConfig) -> list[tuple[str, str]]:
    try:
        runs.check(config)
    except ConfigError as error:
        return error.problems
    return []


def _path(arguments: Namespace) -> int:
    print(library.locate(arguments.preset)[0] if arguments.preset else library.user_folder())
    return 0
