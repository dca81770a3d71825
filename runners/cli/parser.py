"""Parsing of arguments; a mistake is one sentence that suggests the nearest valid word."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from distrain.models.errors import nearest
from distrain.runners import formatting
from distrain.runners.cli.command_table import GROUPS, Command
from distrain.runners.errors import ConfigError

NAMES_OF_THE_APP = ("tui", "app", "ui")  # which is a program of its own


class Parser(argparse.ArgumentParser):
    """Raises ConfigError where argparse prints the usage and exits."""

    def __init__(self, **settings: Any) -> None:
        settings |= {
            "allow_abbrev": False,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
        }
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse suppresses the error of a disk that is full or a reader that has exited.
        (file or sys.stderr).write(message)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # argparse removes "--" here, also from an option such as `--set=--`, which it then gives an
        # empty list.
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            self.error(f"argument {'/'.join(action.option_strings)}: -- is not a value")
        return super()._get_values(action, arg_strings)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # takes 20 ms that other commands save

        print(f"distrain {version('distrain')}")
        parser.exit()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments, with the name of the command as `command`.

    Raises ConfigError; exits by SystemExit after --help and --version.
    """
    commands = {command.name: command for group in GROUPS.values() for command in group}
    parser = Parser(prog="distrain", usage="distrain COMMAND …", description=_describe_commands())
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    if not argv or argv[0].startswith("-"):
        parser.parse_args(argv)
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    name = argv[0]
    if name not in commands:
        if name in NAMES_OF_THE_APP:
            raise ConfigError(f"unknown command {name!r}: `distrain-tui` opens the terminal app")
        raise ConfigError(f"unknown command {name!r}{_suggest(name, commands)}")
    return _parse_command(commands[name], argv[1:])


def _parse_command(command: Command, argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog=f"distrain {command.name}",
        description=command.summary,
        epilog=_format_examples(command.examples),
    )
    parser.set_defaults(command=command.name)
    command.add_arguments(parser)
    program: list[str] = []
    if command.takes_program:
        argv, program = _split_program(argv, parser._option_string_actions)
        argv = _attach_sweeps(argv)
    arguments, unknown = parser.parse_known_args(argv)
    arguments.program = program
    if command.takes_program and arguments.preset and (unknown or arguments.module):
        refuse_program(argv[argv.index(arguments.preset) :])
    if unknown:
        word = unknown[0].partition("=")[0]
        if command.quotes_programs and any(each.endswith(".py") for each in argv):
            parser.error(f"unknown option {word!r}; quote a script together with its arguments")
        if word.startswith("-"):
            options = [option for action in parser._actions for option in action.option_strings]
            has_script = command.takes_program and any(each.endswith(".py") for each in argv)
            hint = "; put options of a script after it" if has_script else ""
            if command.takes_program and arguments.preset and not has_script:
                hint = _suggest_key(word)
            parser.error(f"unknown option {word!r}{hint or nearest(word, options)}")
        parser.error(f"unknown argument {word!r}")
    return arguments


def _attach_sweeps(words: Sequence[str]) -> list[str]:
    """Return the words with `--sweep --lr=…` as one, which argparse would take for two options."""
    attached: list[str] = []
    for word in words:
        if attached and attached[-1] == "--sweep":
            attached[-1] = f"--sweep={word}"
        else:
            attached.append(word)
    return attached


def _split_program(
    words: Sequence[str], options: Mapping[str, argparse.Action]
) -> tuple[Sequence[str], list[str]]:
    """Return our own words, and those of a program with its arguments; none if it is a preset.

    The program begins with the first word that is not an option and names one, with `-m`, or after
    `--`; all words after it are its own. `options` are our own, by name.
    """
    from distrain.runners.config.command_line import is_program  # other commands do without

    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            return words[:index], [*words[index + 1 :]]
        if word == "-m":
            return words[:index], [*words[index:]]
        if not word.startswith("-"):
            return (words[:index], [*words[index:]]) if is_program(word) else (words, [])
        option = options.get(word)
        takes_value = option is not None and option.nargs is None
        index += 2 if takes_value else 1
    return words, []


def _suggest_key(option: str) -> str:
    """Return how to set the key of a preset that an unknown option names, such as `--lr`."""
    from distrain.runners.config.schema import RunConfig
    from distrain.runners.config.validation import paths_of

    key = option.lstrip("-").replace("-", "_")
    paths = [key] if key in RunConfig.__struct_fields__ else paths_of(RunConfig, key)
    return f"; did you mean --set {paths[0]}=…?" if paths else ""


def refuse_program(words: Sequence[str]) -> None:
    """Raise ConfigError if the first word names no preset, but a command or a file here."""
    word, *arguments = words
    is_file = os.path.isfile(word) and not word.endswith(".toml")
    script = f"{word}.py"
    has_script = os.path.isfile(script)
    if not (is_file or has_script or word == "torchrun" or shutil.which(word)):
        return
    from distrain.runners.config.command_line import is_python_command
    from distrain.runners.config.presets import names

    if word in names():
        return
    if is_file:
        raise ConfigError(f"{word} is a file, not a preset: write ./{word} to run it")
    if has_script:
        raise ConfigError(f"there is no preset {word!r}; did you mean {script}?")
    fix = f"put -- before it (`distrain run -- {formatting.shell_words(words)}`)"
    if is_python_command(word) and arguments:
        fix = f"leave it out (`distrain run {formatting.shell_words(arguments)}`), or {fix}"
    elif word == "torchrun":
        example = "`distrain run --devices 0,1 train.py`"
        fix = f"leave it out, because distrain starts the ranks itself ({example}), or {fix}"
    raise ConfigError(f"{word} is a command, not a preset: {fix}")


def _suggest(word: str, commands: dict[str, Command]) -> str:
    suggestion = nearest(word, commands)
    if "did you mean" in suggestion:
        return suggestion
    return "; `distrain --help` lists all commands"


def _format_examples(examples: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in examples.splitlines())


def _describe_commands() -> str:
    lines = [
        "Distributed PyTorch training: choose a strategy, launch, watch, and trust the numbers."
    ]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {command.name:<9} {command.summary}" for command in commands]
    lines += [
        "",
        "RUN is an id, its unique beginning, a name, or `latest`. Runs are kept in --runs-dir,",
        "else $DISTRAIN_RUNS_DIR, else ./runs. `distrain COMMAND --help` shows examples.",
        "Exit codes: 0 completed, 1 failed, 2 bad usage or config, 130 stopped.",
    ]
    return "\n".join(lines)
