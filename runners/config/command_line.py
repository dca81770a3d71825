"""Programs on the command line: the config of the words after `distrain run`, and back."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from distrain.runners.config.schema import RunConfig, parse_assignment
from distrain.runners.config.toml import flatten
from distrain.runners.errors import ConfigError

TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")  # modules that are torchrun
OF_THE_PLACE = ("devices", "launcher")  # a script's default launcher depends on its devices


def is_program(word: str) -> bool:
    """Return whether a word on the command line names a program, not a preset."""
    return word.endswith(".py") or (os.sep in word and not word.endswith(".toml"))


def is_python_command(word: str) -> bool:
    """Return whether a word is Python itself: "python3", ".venv/bin/python"."""
    return re.fullmatch("python[0-9.]*", os.path.basename(word)) is not None


def program_config(words: Sequence[str], changes: Mapping[str, Any]) -> RunConfig:
    """Return the config of a program with its arguments, or of `-m`, a module and its arguments.

    `changes` are values by dotted key. Raises ConfigError.
    """
    program, *rest = words
    script: dict[str, Any] = {"path": program, "args": rest}
    if program == "-m":
        if not rest:
            raise ConfigError("-m takes the name of a module")
        if rest[0].endswith(".py"):
            raise ConfigError(f"{rest[0]} is a file: leave out -m")
        if rest[0] in TORCHRUN:
            raise ConfigError(
                f"leave out -m {rest[0]}, because distrain starts the ranks itself "
                "(`distrain run --devices 0,1 train.py`), or put -- python before it"
            )
        script = {"module": rest[0], "args": rest[1:]}
    place = {key: changes[key] for key in OF_THE_PLACE if key in changes}
    others = {key: value for key, value in changes.items() if key not in place}
    return RunConfig.from_dict({"script": script, **place}).with_changes(others)


def program_words(config: RunConfig) -> list[str]:
    """Return the program of a config with its arguments, as they follow `distrain run`."""
    words = config.script.words
    is_clear = config.script.module or is_program(words[0])
    return words if is_clear else ["--", *words]


def option_words(config: RunConfig) -> list[str]:
    """Return the options before its program that give this config."""
    place = {} if config.devices == "auto" else {"devices": config.devices}
    words = ["--devices", format_devices(config.devices)] if place else []
    bare = _flat(program_config(config.script.words, place))
    own = _flat(config)
    for key in [*own, *(bare.keys() - own.keys())]:
        if own.get(key) != bare.get(key):
            words += ["--set", f"{key}={format_assigned(key, own.get(key))}"]
    return words


def _flat(config: RunConfig) -> dict[str, Any]:
    """Return the values by dotted key; the names of variables may have dots themselves."""
    flat = flatten(config.to_dict())
    values = {key: value for key, value in flat.items() if not key.startswith("script.env.")}
    return {**values, "script.env": config.script.env}


def format_devices(devices: str | Sequence[int | str]) -> str:
    """Return devices as `--devices` takes them."""
    return devices if isinstance(devices, str) else ",".join(map(str, devices))


def format_assigned(key: str, value: Any) -> str:
    """Return the VALUE of `--set KEY=VALUE`: bare if that parses to the same value, else TOML."""
    if value is None:
        return ""
    if isinstance(value, str) and value and parse_assignment(f"{key}={value}")[1] == value:
        return value
    return format_toml(value)


def format_toml(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        items = [f"{_format_key(key)} = {format_toml(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_toml, value)) + "]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def _format_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else format_toml(key)
