"""What every process of a rank does: its log, its connection, and the report of a failure."""

from __future__ import annotations

import os
import re
import signal
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from itertools import dropwhile
from pathlib import Path

import distrain
from distrain.runners.distributed.secondary_failures import is_secondary_failure
from distrain.runners.protocol.events import Failure
from distrain.runners.protocol.reporter import Reporter

SIGNAL_S = 0.2  # from the end of a child's connections to the signal of its end
MAX_LOADERS = 16  # that raise, once each, in one program
LATE_ERROR = (
    "the failed call may be earlier than the traceback shows: set CUDA_LAUNCH_BLOCKING=1 to see it"
)
NO_TERMINAL = (
    "breakpoint() and pdb need a terminal, which ranks do not have: use a debugger that attaches "
    "to a process, such as debugpy, or run the program without distrain"
)
MAX_MESSAGE = 4_000  # characters
MAX_TRACEBACK = 100_000  # characters
TRACEBACK = "Traceback (most recent call last):\n"
_INSTALLED = (
    os.path.join(os.path.dirname(distrain.__file__), ""),
    *(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib")),
)
_RAISED_AGAIN = re.compile(rf"Caught \w+ .+\.\nOriginal {re.escape(TRACEBACK)}")


def redirect_output(path: Path, errors: str | None = None) -> None:
    """Append all output of this process, its libraries and its children to a log file.

    `errors` is what Python does with text that cannot be encoded; by default as without distrain.
    """
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors=errors)  # type: ignore[union-attr]


def report_no_log(rank: int, error: OSError) -> int:
    """Report that this rank cannot write its log, and return its exit code."""
    traceback.print_exception(error)
    with Reporter.from_env() as reporter:
        reporter.send(make_failure(rank, error))
    return 1


def exit_without_supervisor() -> None:
    """End this process because nobody receives its reports any more."""
    print("the supervisor has exited, so this rank exits too", file=sys.stderr)
    os._exit(1)


def call(work: Callable[[], object]) -> BaseException | None:
    """Call `work` and return the exception that ended it, None where there was none.

    Torch's handler of SIGCHLD raises for a data loader's process that was killed, in whatever code
    then runs: one that waits is raised here, as it explains the first exception, and later ones
    must not end the report of it. So after an exception torch's handler is taken away; those of
    the program stay.
    """
    ended: BaseException | None = None
    try:
        work()
    except BaseException as error:
        ended = error
    for _ in range(MAX_LOADERS if ended else 0):
        # Not in a function of our own: Python calls handlers where a function begins, too.
        try:
            if isinstance(ended, ConnectionError | EOFError):
                time.sleep(SIGNAL_S)
            handler = signal.getsignal(signal.SIGCHLD)
            if getattr(handler, "__module__", "").startswith("torch."):
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            break
        except Exception as error:
            error.__context__, ended = ended, error
    return ended


def make_exit_failure(rank: int, error: SystemExit, step: int) -> Failure | None:
    """Return the report of a `sys.exit` with a code or with a message; None for exit code 0.

    It came after `step` steps. A program that catches its error often prints it, and exits with a
    code, as torch's `spawn` does. Then the error is reported.
    """
    message = error.code
    if isinstance(message, int):
        cause = None if error.__suppress_context__ else error.__context__
        if message & 0xFF and isinstance(cause, Exception):
            return make_failure(rank, cause, step)
        message = f"exited with code {message & 0xFF}" if message & 0xFF else None
    if message is None:
        return None
    text = make_sendable(str(message), MAX_MESSAGE)
    return Failure(time=time.time(), rank=rank, error="SystemExit", message=text, step=step)


def make_failure(
    rank: int,
    error: BaseException,
    step: int = 0,
    *,
    usage: bool = False,
    in_users_code: bool = False,
) -> Failure:
    """Return the report of the exception that ends a rank after `step` steps.

    `usage` marks a mistake in the user's configuration, whose traceback explains nothing.
    `in_users_code` leaves out the calls of distrain by which a traceback begins.
    """
    message = _message_of(error)
    complete = traceback.TracebackException.from_exception(error)
    if in_users_code:
        _begin_in_users_code(complete)
    trace = "" if usage else "".join(complete.format())
    return Failure(
        time=time.time(),
        rank=rank,
        error=make_sendable(type(error).__name__, MAX_MESSAGE),
        message=make_sendable(message, MAX_MESSAGE),
        step=step,
        traceback=make_sendable(trace, MAX_TRACEBACK),
        usage=usage,
        secondary=is_secondary_failure(error, message),
    )


def _begin_in_users_code(formatted: traceback.TracebackException) -> None:
    """Leave out the calls that lead to the user's code, where there is any.

    Repeated attempts may have led to thousands of errors.
    """
    chain: list[traceback.TracebackException | None] = [formatted]
    while chain:
        if each := chain.pop():
            frames = list(dropwhile(lambda frame: _is_installed(frame.filename), each.stack))
            if frames:
                each.stack = traceback.StackSummary.from_list(frames)
            chain += [each.__cause__, each.__context__]


def _is_installed(path: str) -> bool:
    """Return whether a file is part of distrain, Python or an installed package."""
    return path.startswith(("<", *_INSTALLED))


def _message_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):  # sys.exit(message)
            return f"exited before training had ended: {error.code}"
        return f"exited with code {error.code or 0} before training had ended"
    kind = type(error).__name__
    if kind == "BdbQuit" and not (sys.stdin and sys.stdin.isatty()):
        return NO_TERMINAL
    try:
        return _without_advice(_original_message(str(error), kind)) or kind
    except Exception:
        return f"{kind}, whose message cannot be formatted"


def _original_message(text: str, kind: str) -> str:
    """Return the message of an error that torch has raised again, as that of a loader process; of
    another error the text as it is.

    torch makes a message of all of its traceback, which ends with its type and own message.
    """
    if not _RAISED_AGAIN.match(text):
        return text
    lines = text.rpartition(TRACEBACK)[2].splitlines()
    end = "\n".join(dropwhile(lambda line: line.startswith(" "), lines))
    name, _, message = end.partition(": ")
    return message if name.rpartition(".")[2] == kind else end or text


def _without_advice(text: str) -> str:
    """Return the message of an error; of one that CUDA reports later only what it means.

    torch adds four lines to each of them, which stay in the traceback.
    """
    first, _, others = text.partition("\n")
    is_late = first.startswith("CUDA error: ") and "CUDA_LAUNCH_BLOCKING" in others
    return f"{first}; {LATE_ERROR}" if is_late else text


def make_sendable(text: str, limit: int) -> str:
    """Return valid UTF-8 of a bounded length; a text that is too long keeps its two ends."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    half = limit // 2
    return clean if len(clean) <= limit else f"{clean[:half]} … {clean[-half:]}"
