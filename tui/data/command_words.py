"""The words of a command line in the app: what they complete to, and what they may do."""

from __future__ import annotations

import shlex
from argparse import Action, ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from distrain.runners.cli.command_table import GROUPS, Command
from distrain.runners.config import presets
from distrain.runners.runs import Run, all_runs
from distrain.tui.data import config_fields

COMMANDS = {command.name: command for group in GROUPS.values() for command in group}
# All others are refused in a read-only app.
READING = {"runs", "queue", "show", "logs", "compare", "schema", "doctor", "export"}
CHANGING_WORDS = {"--out", "--fix", "move"}
DETACHED = ("--detach", "--queue")
MOST_RUNS = 300  # whose names are offered, newest first
LATEST = "latest"


class Completion(NamedTuple):
    """A word to insert, and what it means."""

    word: str
    about: str = ""


def is_reading(words: Sequence[str]) -> bool:
    """Return whether a command of the command line changes no run and writes no file."""
    options = {word.partition("=")[0] for word in words}
    return words[0] in READING and not options & CHANGING_WORDS


def for_app(words: Sequence[str]) -> list[str]:
    """Return a command as the app executes it.

    A run does not end with the app, and waits where its devices are busy.
    """
    name, *rest = words
    options = [option for option in DETACHED if option in _options(name) and option not in rest]
    return [name, *options, *rest]


def starts_something(name: str) -> bool:
    return DETACHED[0] in _options(name)


def complete(
    text: str, first_words: Iterable[Completion], arguments: Mapping[str, Sequence[Completion]]
) -> list[Completion]:
    """Return what the last word of a line may become: those that begin with it come first.

    `arguments` are the values that may follow a word: kinds ("run", "preset", "set") of arguments
    of commands, and names of the app's own commands.
    """
    *before, last = text.split(" ")
    before = [word for word in before if word]
    if not before:
        return _matching(first_words, last)
    name = before[0]
    if name in arguments:
        return _matching(arguments[name], last)
    if name not in COMMANDS:
        return []
    if last.startswith("-"):
        options = (
            Completion(option, action.help or "") for option, action in _options(name).items()
        )
        return _matching(options, last)
    if before[-1].startswith("-"):
        action = _options(name).get(before[-1])
        if action is not None and action.nargs != 0:
            return _matching(_values(action, arguments), last)
    found = [each for action in _positionals(name) for each in _values(action, arguments)]
    return _matching(found, last)


def _matching(offered: Iterable[Completion], word: str) -> list[Completion]:
    every = list(dict.fromkeys(each for each in offered if word.casefold() in each.word.casefold()))
    every.sort(key=lambda each: not each.word.strip("'").casefold().startswith(word.casefold()))
    return every


def _values(action: Action, arguments: Mapping[str, Sequence[Completion]]) -> list[Completion]:
    """Return what an argument of a command may be."""
    if action.choices:
        return [Completion(str(choice)) for choice in action.choices]
    kind = KINDS.get(action.dest, "")
    return list(arguments.get(kind, ()))


KINDS = {
    "run": "RUN",
    "runs": "RUN",
    "preset": "PRESET",
    "presets": "PRESET",
    "candidates": "PRESET",
    "baseline": "PRESET",
    "changes": "KEY",
}


@cache
def _parser(command: Command) -> ArgumentParser:
    parser = ArgumentParser(add_help=False)
    command.add_arguments(parser)
    return parser


def _options(name: str) -> dict[str, Action]:
    """Return the options of a command by their names."""
    return _parser(COMMANDS[name])._option_string_actions


def _positionals(name: str) -> list[Action]:
    return [action for action in _parser(COMMANDS[name])._actions if not action.option_strings]


def values_of_arguments(runs_dir: Path) -> dict[str, list[Completion]]:
    """Return the runs, presets and config keys that may follow a command. It reads records."""
    runs = [*reversed(all_runs(runs_dir)[-MOST_RUNS:])]
    return {
        "RUN": [Completion(LATEST, "the newest run")]
        + [Completion(shlex.quote(_word_for(run)), f"{run.status} {run.id}") for run in runs],
        "PRESET": [
            Completion(preset.name, preset.config.description if preset.config else preset.problem)
            for preset in presets.listing()
        ],
        "KEY": [Completion(f"{field.key}=", field.about) for field in config_fields.fields()],
    }


def _word_for(run: Run) -> str:
    """Return a word that commands read as this run: a name may look like an option."""
    if run.name and not run.name.startswith("-") and run.name != LATEST:
        return run.name
    return str(run.dir) if run.id.startswith("-") else run.id
