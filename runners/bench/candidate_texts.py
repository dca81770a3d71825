"""Candidates as a person writes them: presets, and command lines of scripts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from distrain.runners import formatting
from distrain.runners.config.command_line import (
    is_program,
    is_python_command,
    option_words,
    program_config,
    program_words,
)
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig, parse_assignment, parse_devices
from distrain.runners.errors import ConfigError

_ASSIGNMENT_COMMA = re.compile(r",(?=[\w.]+=)")  # the comma in "x=a, b" is part of the value
_OPTIONS = ("--devices", "--launcher", "--set", "--no-auto")  # that may precede a script


def candidates(texts: Sequence[str], changes: dict[str, Any]) -> dict[str, RunConfig]:
    """Return the configs of presets, files and command lines, by the names of the candidates.

    A preset or file may be followed by changes of its own: "ddp", "./mine.toml",
    "ddp,precision=bf16". A command line is a script with its arguments, as after `distrain run`,
    and may begin with options: "train.py --lr 0.1", "-m package.train", "--devices 0,1 train.py".
    Names leave out what all presets, or all scripts, have in common. `changes` are values by dotted
    key, for all. Raises ConfigError.
    """
    found: list[tuple[list[str], RunConfig]] = []
    for text in texts:
        try:
            config = read_command_line(text, changes)
            found.append(([], config) if config else _read_preset(text, changes))
        except ConfigError as error:
            raise _of_candidate(text, error) from None
    names_of_presets = iter(_name_presets([words for words, _ in found if words]))
    names_of_scripts = iter(name_scripts([config for words, config in found if not words]))
    configs: dict[str, RunConfig] = {}
    for words, config in found:
        name = next(names_of_presets if words else names_of_scripts)
        if name in configs:
            raise ConfigError(f"{name} is given twice; name each candidate once")
        configs[name] = config
    return configs


def _of_candidate(text: str, error: ConfigError) -> ConfigError:
    """Return the error with its candidate named, as far as it does not name it."""
    if text in str(error):
        return error
    return ConfigError([(f"{text}: {key}" if key else text, why) for key, why in error.problems])


def _read_preset(text: str, changes: Mapping[str, Any]) -> tuple[list[str], RunConfig]:
    """Return the config of a preset or file with its own changes, after its name and these."""
    preset, *assignments = _ASSIGNMENT_COMMA.split(text)
    own_changes = dict(parse_assignment(assignment) for assignment in assignments)
    config = load_preset(preset, {**changes, **own_changes})
    return [Path(preset).stem, *assignments], config


def _name_presets(candidates: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each preset: its own, with the changes that not all of them have."""
    changes = [set(words[1:]) for words in candidates]
    common = set.intersection(*changes) if len(changes) > 1 else set()
    return [",".join(word for word in words if word not in common) for words in candidates]


def read_command_line(text: str, changes: Mapping[str, Any]) -> RunConfig | None:
    """Return the config of a script with its arguments, or None if the text names a preset.

    Raises ConfigError.
    """
    preset = _ASSIGNMENT_COMMA.split(text)[0]
    is_name = len(preset.split()) == 1 and not preset.startswith("-") and not is_program(preset)
    if is_name or (preset.endswith(".toml") and os.path.isfile(preset)):  # a path may have spaces
        return None
    try:
        words = shlex.split(text)
    except ValueError as error:
        reason = str(error).lower()
        raise ConfigError(f"the candidate {text!r} cannot be read: {reason}") from None
    own_changes: dict[str, Any] = {}
    while words and words[0].startswith("--") and words[0] != "--":
        key, value = _read_option(text, words)
        own_changes[key] = value
    is_marked = words[:1] == ["--"]
    if is_marked:
        words.pop(0)
    first, *assignments = _ASSIGNMENT_COMMA.split(words[0]) if words else [""]
    if assignments and is_program(first):
        options = " ".join(f"--set {assignment}" for assignment in assignments)
        raise ConfigError(
            f"the candidate {text!r} sets keys of a script: write {options} before it"
        )
    if is_python_command(first):
        raise ConfigError(f"the candidate {text!r} begins with {first}: leave it out")
    if not (is_marked and words) and first != "-m" and not is_program(first):
        raise ConfigError(
            f"the candidate {text!r} names no script: a word that ends in .py or contains a "
            "slash, or -m and a module"
        )
    return program_config(words, {**changes, **own_changes})


def _read_option(text: str, words: list[str]) -> tuple[str, Any]:
    """Take the option at the start of the words, and return the key that it sets with its value."""
    option, equals, value = words.pop(0).partition("=")
    if option not in _OPTIONS:
        allowed = "only --devices, --launcher, --set and --no-auto may precede its script"
        raise ConfigError(f"the candidate {text!r} begins with {option}; {allowed}")
    if option == "--no-auto":
        return "script.auto", False
    if not equals:
        if not words:
            raise ConfigError(f"the candidate {text!r} ends after {option}")
        value = words.pop(0)
    if option == "--set":
        return parse_assignment(value)
    return option.removeprefix("--"), parse_devices(value) if option == "--devices" else value


# --- names of scripts -----------------------------------------------------------------------------


def command_words(config: RunConfig) -> list[str]:
    """Return the command line of a script as a candidate, with the options before it."""
    return [*option_words(config), *program_words(config)]


def name_scripts(configs: Sequence[RunConfig]) -> list[str]:
    """Return a name for each script: its file and the arguments that not all of them have.

    Options before the script are part of the names where they differ.
    """
    options = [option_words(config) for config in configs]
    files = [[config.script.name] for config in configs]
    arguments = _differing_words([config.script.args for config in configs])
    if all(words == options[0] for words in options):
        options = [[] for _ in configs]
    parts = zip(options, files, arguments, strict=True)
    names = [formatting.shell_words([*before, *file, *after]) for before, file, after in parts]
    if len({*names}) == len(names):
        return names
    return [formatting.shell_words(command_words(config)) for config in configs]


def _differing_words(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return lines of words without what all begin with and what all end with.

    A value stays with its option: "--lr 0.1", not "0.1".
    """
    start = _common_start(lines)
    rests = [list(line[start:]) for line in lines]
    is_value = any(rest and not rest[0].startswith("-") for rest in rests)
    if start and is_value and len(lines) > 1 and lines[0][start - 1].startswith("-"):
        rests = [[lines[0][start - 1], *rest] for rest in rests]
    end = _common_start([rest[::-1] for rest in rests])
    while end and not rests[0][-end].startswith("-") and any(map(_is_option_before(end), rests)):
        end -= 1
    return [rest[: len(rest) - end] for rest in rests]


def _is_option_before(end: int) -> Callable[[Sequence[str]], bool]:
    """Return whether the word before the last `end` words of a line is an option."""
    return lambda words: len(words) > end and words[-end - 1].startswith("-")


def _common_start(lines: Sequence[Sequence[str]]) -> int:
    """Return the number of words that all lines begin with."""
    columns = zip(*lines, strict=False)  # as many as the shortest line has
    return sum(1 for _ in takewhile(lambda words: len({*words}) == 1, columns))


def find_candidate(
    wanted: str, configs: Mapping[str, RunConfig], changes: Mapping[str, Any]
) -> str:
    """Return the name of the candidate with this name, changes or command line, else the text."""
    if wanted in configs:
        return wanted
    try:
        config = read_command_line(wanted, changes) or _read_preset(wanted, changes)[1]
    except ConfigError:
        return wanted
    return next((name for name, each in configs.items() if each == config), wanted)
