"""The logs of a run: what its launcher, its job, its supervisor and its ranks have printed.

Programs of other people write them, so they are opened as regular files of the record only.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from distrain.runners import formatting
from distrain.runners.system.files import open_regular

LAST_WORDS = 1 << 14  # bytes at the end of the log of a rank
MAX_WORDS = 300  # characters of them that are shown
_LINE = re.compile(r"^.*\S.*$", re.MULTILINE)
_WHAT = re.compile(r"^  what\(\):\s+(.+)$", re.MULTILINE)
# What the C library and NCCL print before they abort, without an exception.
_ABORT = re.compile(
    r"^.*(?:Assertion .* failed|\w\(\): (?:invalid|corrupted|unaligned)|double free or corruption"
    r"|corrupted (?:size|double)|stack smashing|watchdog hang|Heartbeat monitor).*$",
    re.MULTILINE,
)
CRASH_BYTES = 1 << 16  # at the end of the log of the supervisor: the stacks of its threads
# What faulthandler prints.
_CRASH = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_SIGNALS = {
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
    "Segmentation fault": "SIGSEGV",
}


def log_path(folder: Path, name: str) -> Path:
    """Return the path of a log in a run's folder."""
    return folder / "logs" / f"{name}.log"


def rank_logs(folder: Path) -> dict[int, Path]:
    """Return the logs of a run's ranks so far, in order of ranks."""
    found = {}
    for path in (folder / "logs").glob("rank-*.log"):
        if match := re.fullmatch(r"rank-([0-9]{1,9})", path.stem):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def open_log(path: Path) -> BinaryIO:
    """Open a log for reading. Raises OSError, also if it or its folder is a link, or no file."""
    check_log_folder(path)
    return open_regular(path)


def check_log_folder(path: Path) -> None:
    """Raise OSError if the folder of a log is a link."""
    if os.path.islink(path.parent):
        raise OSError(errno.ELOOP, "its folder is a symbolic link, which is not followed")


def read_last_words(folder: Path, codes: Mapping[int, int]) -> dict[int, str]:
    """Return what ranks with these exit codes have printed of their end.

    For a rank that aborted, this is the message of a C++ exception, else of the C library or NCCL;
    for one that exited, it is its last line.
    """
    found = {}
    for rank, code in codes.items():
        patterns = [_LINE] if code > 0 else [_WHAT, _ABORT] if code == -signal.SIGABRT else []
        if not patterns:
            continue
        with suppress(OSError):
            log = read_end(log_path(folder, f"rank-{rank}"), LAST_WORDS).decode(errors="replace")
            if texts := next(filter(None, (each.findall(log) for each in patterns)), None):
                found[rank] = formatting.printable(texts[-1][:MAX_WORDS])
    return found


def read_crash(folder: Path) -> str:
    """Return the name of the signal of a fault that ended the supervisor; "" if none is known."""
    with suppress(OSError):
        log = read_end(log_path(folder, "supervisor"), CRASH_BYTES)
        if texts := _CRASH.findall(log.decode(errors="replace")):
            return _SIGNALS.get(texts[-1], "")
    return ""


def read_end(path: Path, size: int) -> bytes:
    """Return up to `size` bytes at the end of a log. Raises OSError."""
    with open_log(path) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - size))
        return file.read(size)
