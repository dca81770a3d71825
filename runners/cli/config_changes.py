"""The changes to a config that --set, --devices and --launcher request.

`config.schema.parse_assignment` defines the syntax of --set; the keys are in the
sections that `config.schema` has.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from distrain.runners.config.schema import parse_assignment, parse_devices
from distrain.runners.errors import ConfigError


def config_changes(arguments: Namespace) -> dict[str, Any]:
    """Return the changes as values by dotted key. Raises ConfigError with every problem."""
    changes: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for text in arguments.changes:
        try:
            key, value = parse_assignment(text)
            changes[key] = value
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    devices = getattr(arguments, "devices", None)  # `presets save` has no --devices
    if devices is not None:
        changes["devices"] = parse_devices(devices)
    launcher = getattr(arguments, "launcher", None)  # only `run` and `bench` have it
    if launcher is not None:
        changes["launcher"] = launcher
    return changes
