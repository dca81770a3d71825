"""Arguments in; a wrong use is one sentence with the nearest right one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from runners.cli.commands import GROUPS, Command
from runners.errors import ConfigError, nearest


class Parser(argparse.ArgumentParser):
    """Raises ConfigError in place of printing its usage and leaving."""

    def __init__(self, **how: Any) -> None:
        how |= {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**how)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # 20 ms that only --version need pay

        print(f"distrain {version('distrain')}")
        parser.exit()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Arguments with `module` and `function` of the command; raises ConfigError.

    Leaves by SystemExit after --help and --version.
    """
    commands = {command.name: command for group in GROUPS.values() for command in group}
    parser = Parser(prog="distrain", usage="distrain COMMAND …", description=_overview())
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    if not argv or argv[0].startswith("-"):
        parser.parse_args(argv)
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    if (command := commands.get(argv[0])) is None:
        raise ConfigError(f"unknown command {argv[0]!r}{_hint(argv[0], commands)}")
    return _parse_command(command, argv[1:])


def _parse_command(command: Command, argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog=f"distrain {command.name}", description=command.about, epilog=_epilog(command.examples)
    )
    parser.set_defaults(
        module=f"runners.cli.{command.module}", function=command.function or command.name
    )
    command.arguments(parser)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        word = unknown[0].partition("=")[0]
        kind, hint = ("option", nearest(word, known)) if word.startswith("-") else ("argument", "")
        parser.error(f"unknown {kind} {word!r}{hint}")
    return arguments


def _hint(word: str, commands: dict[str, Command]) -> str:
    hint = nearest(word, commands)
    return hint if "did you mean" in hint else "; `distrain --help` lists all commands"


def _epilog(examples: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in examples.splitlines())


def _overview() -> str:
    lines = ["Distributed PyTorch training: pick a backend, launch, watch, and trust the numbers."]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {command.name:<9} {command.about}" for command in commands]
    lines += [
        "",
        "RUN is an id, its unique beginning, a name, or `latest`. Runs are kept in --runs-dir,",
        "else $DISTRAIN_RUNS_DIR, else ./runs. `distrain COMMAND --help` has examples.",
        "Exit codes: 0 completed, 1 failed, 2 bad usage or config, 130 stopped.",
    ]
    return "\n".join(lines)
