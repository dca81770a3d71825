"""The command line: `distrain`, or `python -m runners`.

Owns words, tables, live text and exit codes. What it shows it reads from records, what it
does it asks of `runners.runs`. Data goes to stdout, talk to stderr. Exit codes: 0 completed,
1 failed, 2 bad usage or config, 130 stopped.

Only argparse is imported here; each command loads what it needs, for a person waits for it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from runners.cli.parser import parse
from runners.errors import ConfigError, DistrainError

INTERRUPTED = 130
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # behind `>`, mostly
BROKEN_PIPE = 141  # as a shell reports a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us, as daemons are
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")
    try:
        arguments = parse(_in_unicode(sys.argv[1:] if argv is None else argv))
        code: int = getattr(import_module(arguments.module), arguments.function)(arguments)
        sys.stdout.flush()
        return code
    except DistrainError as error:
        print(complaint(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_what_waits()  # whoever read us has enough
        return BROKEN_PIPE
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        _drop_what_waits()
        where = f"{error.filename}: " if error.filename else ""
        print(f"distrain: {where}{error.strerror}", file=sys.stderr)
        return 1


def _drop_what_waits() -> None:
    """Python would flush, and complain, once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _in_unicode(arguments: Sequence[str]) -> Sequence[str]:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the argument {argument!a} is not valid UTF-8") from None
    return arguments


def complaint(error: DistrainError) -> str:
    """What a person reads of an error: one sentence, or one line per problem with its key."""
    problems = error.problems if isinstance(error, ConfigError) else [("", str(error))]
    if len(problems) == 1:
        key, text = problems[0]
        return f"distrain: {key}: {text}" if key else f"distrain: {text}"
    head = "this configuration cannot run:"
    if not problems[0][0]:
        head, problems = problems[0][1], problems[1:]
    return "\n".join(
        [
            f"distrain: {head}",
            *(f"  {key}: {text}" if key else f"  {text}" for key, text in problems),
        ]
    )
