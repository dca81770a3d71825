"""`bench`: measure which candidate is fastest."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from distrain.runners.analysis.comparison import descriptions, sentences
from distrain.runners.bench import handle
from distrain.runners.bench.candidate_texts import candidates, find_candidate
from distrain.runners.bench.definition import Definition, Target, make, plans
from distrain.runners.bench.progress import describe_plan
from distrain.runners.cli.config_changes import config_changes
from distrain.runners.cli.options import parse_share
from distrain.runners.cli.start import start_session
from distrain.runners.cli.terminal import TextColumn, align_columns, print_message
from distrain.runners.config.plan import Plan
from distrain.runners.errors import ConfigError
from distrain.runners.system.files import read_named

_RULES = ("repeats", "seconds", "steps", "precision", "baseline", "seed")


def execute(arguments: Namespace) -> int:
    """Start a bench of presets and scripts, or of the definition in a file."""
    definition = _definition(arguments)
    _print_settings(definition, plans(definition))
    return start_session(
        arguments,
        lambda: handle.start(
            definition,
            name=arguments.name or "",
            runs_dir=arguments.runs_dir,
            queue=arguments.queue,
        ),
    )


def _definition(arguments: Namespace) -> Definition:
    rules: dict[str, Any] = {}
    for rule in _RULES:
        value = getattr(arguments, rule)
        if value is not None:
            rules[rule] = value
    if arguments.unequal:
        rules["unequal"] = True
    target = _parse_target(arguments.target)
    _refuse_ignored(arguments)
    changes = config_changes(arguments)
    given = arguments.candidates
    saved = _read_definition(given[0]) if len(given) == 1 else None
    if saved is None:
        configs = candidates(given, changes)
        if arguments.baseline:
            rules["baseline"] = find_candidate(arguments.baseline, configs, changes)
        return make(configs, rules, target)
    changed = saved.with_changes(changes)
    return make(changed.configs, asdict(saved.rules) | rules, target or saved.target)


def _refuse_ignored(arguments: Namespace) -> None:
    """Raise ConfigError if an option would have no effect because of another one."""
    given = [rule for rule in ("steps", "seconds") if getattr(arguments, rule) is not None]
    if len(given) > 1:
        raise ConfigError("--steps and --seconds cannot be combined: both say how long to measure")
    if given and arguments.target:
        raise ConfigError(f"--{given[0]} has no effect with --target, which ends each run")


def _read_definition(path: str) -> Definition | None:
    """Return the definition in a TOML file, or None if it is not one of a bench."""
    if not path.endswith(".toml"):
        return None
    try:
        text = read_named(Path(path))
    except (OSError, UnicodeDecodeError):
        return None
    if not re.search(r"\[(candidates|contestants)\b", text):
        return None
    return Definition.from_toml(text)


def _parse_target(text: str | None) -> Target | None:
    """Return the metric and value of "top1=95%" or "loss=0.1". Raises ConfigError."""
    if text is None:
        return None
    metric, _, value = text.partition("=")
    try:
        return Target(metric=metric.strip(), value=parse_share(value))
    except ValueError:
        message = f"--target takes METRIC=VALUE, e.g. --target top1=95%, not {text!r}"
        raise ConfigError(message) from None


def _print_settings(definition: Definition, candidate_plans: Mapping[str, Plan]) -> None:
    """Print what is equal, what differs, and how long the bench will take."""
    settings = definition.settings(candidate_plans)
    print_message(f"equal: {descriptions.format_settings(settings.equal)}", "dim")
    names = list(candidate_plans)
    fair = [each for each in settings.differences if each.fair]
    if fair:
        columns = [TextColumn(title) for title in ("differs", *(each.key for each in fair))]
        values = [[sentences.format_setting(value) for value in each.values] for each in fair]
        for line in align_columns(columns, zip(names, *values, strict=True)):
            print_message(line, "dim")
    for difference in settings.differences:
        if not difference.fair:
            values_text = descriptions.format_difference(difference, names)
            print_message(f"UNEQUAL: {values_text}", "warning")
    if definition.has_scripts:
        print_message("what the scripts declare is compared once each has run", "dim")
    print_message(describe_plan(definition))
