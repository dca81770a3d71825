"""The command line: `distrain`, or `python -m distrain`.

Each command is a module of its name with a function `execute`. This package owns the text, tables,
live output and exit codes of commands; it reads from `records` and acts through `runs` and `bench`.
Data goes to stdout, messages to stderr. Exit codes: 0 completed, 1 failed, 2 bad usage or config,
130 stopped.

Only argparse is imported here. Each command loads what it needs, because a person waits for it.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from distrain.runners.cli.error_text import format_error
from distrain.runners.cli.parser import parse
from distrain.runners.errors import (
    FOLDER_DELETED,
    DistrainError,
    RunsFolderError,
    is_current_folder_deleted,
)
from distrain.runners.system.encoding import require_utf8
from distrain.runners.system.limits import LIMITS, explain, require_proc
from distrain.runners.system.python_path import hidden_module

INTERRUPTED = 130
FULL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
BROKEN_PIPE = 141  # as a shell reports a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Execute one command and return its exit code, after which the process has to end."""
    code = _execute(argv)
    if code == INTERRUPTED:  # while Python ends, another Ctrl-C would change the exit code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _execute(argv: Sequence[str] | None) -> int:
    _open_closed_streams()
    try:
        require_proc()
        words = sys.argv[1:] if argv is None else argv
        require_utf8(words)
        arguments = _parse(words)
        command = import_module(f"{__name__}.{arguments.command}")
        code: int = command.execute(arguments)
        sys.stdout.flush()
        return code
    except DistrainError as error:
        return _report(error)
    except (ImportError, AttributeError):
        if problem := hidden_module(among=sys.modules):
            return _report(DistrainError(problem))
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has exited
        _discard_stdout()
        return BROKEN_PIPE
    except OSError as error:
        if is_current_folder_deleted():
            return _report(RunsFolderError(FOLDER_DELETED))
        if error.errno not in (*FULL_DISK_ERRORS, *LIMITS):
            raise
        _discard_stdout()
        where = f"{error.filename}: " if error.filename else ""
        print(f"distrain: {where}{explain(error)}", file=sys.stderr)
        return 1


def _parse(argv: Sequence[str]) -> Namespace:
    try:
        return parse(argv)
    except SystemExit:  # after --help; it may still be in the buffer
        sys.stdout.flush()
        raise


def _report(error: DistrainError) -> int:
    print(format_error(error), file=sys.stderr)
    return error.exit_code


def _open_closed_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process, as for a daemon
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that Python's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
