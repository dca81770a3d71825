"""What the system lacks or refuses: /proc, limits of this user (`ulimit`), and of a container."""

from __future__ import annotations

import errno
import math
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from distrain.runners.errors import DistrainError

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
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


def cpu_quota() -> float:
    """Return how many cores' time the control groups of this process have; infinite if unlimited.

    Source: cgroups(7), `cpu.max` of version 2 and `cpu.cfs_quota_us` of version 1.
    """
    return min(_quotas(), default=math.inf)


def _quotas() -> Iterator[float]:
    for line in _read(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / "cpu" if controllers else CONTROL_GROUPS
        # Groups are nested, and each limits those in it. A container sees its own as the uppermost
        # one, while the path may be the one that the host sees.
        for group in (PurePosixPath(path), *PurePosixPath(path).parents):
            folder = root / group.relative_to("/")
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
            words = " ".join(_read(folder / name) for name in files).split()
            if len(words) == 2 and words[0].isdecimal():  # neither "max" nor -1
                yield int(words[0]) / int(words[1])


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
