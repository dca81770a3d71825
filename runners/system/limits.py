"""What the system lacks or refuses: /proc, and limits that this user has (`ulimit`)."""

from __future__ import annotations

import errno
import os
import resource
import sys

from distrain.runners.errors import DistrainError

LIMITS = {  # by errno: the limit, the option of ulimit and its unit
    errno.EMFILE: (resource.RLIMIT_NOFILE, "-n", 1),
    errno.EFBIG: (resource.RLIMIT_FSIZE, "-f", 1024),
    errno.EAGAIN: (resource.RLIMIT_NPROC, "-u", 1),
}


def require_proc() -> None:
    """Raise DistrainError where Linux shows no processes, as in a chroot without /proc."""
    if sys.platform == "linux" and not os.path.exists("/proc/self/stat"):
        raise DistrainError("/proc is not mounted, through which distrain watches processes")


def explain(error: OSError) -> str:
    """Return why the system refused something, with the limit that explains it."""
    text = error.strerror or str(error)
    return f"{text}{limit_hint(error.errno or 0)}"


def limit_hint(code: int) -> str:
    """Return e.g. " (`ulimit -n` is 16)" for an errno; an empty string where there is no limit."""
    if code not in LIMITS:
        return ""
    number, option, unit = LIMITS[code]
    soft, _ = resource.getrlimit(number)
    return "" if soft == resource.RLIM_INFINITY else f" (`ulimit {option}` is {soft // unit})"


def cpu_seconds() -> int | None:
    """Return after how many seconds of CPU time the system ends a process of this user."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    return None if hard == resource.RLIM_INFINITY else hard
