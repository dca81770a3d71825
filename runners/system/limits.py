"""What the system lacks or refuses: /proc, limits of this user (`ulimit`), and of a container."""

from __future__ import annotations

import errno
import math
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from distrain.runners.errors import DistrainError

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
_FILE_CACHE = {  # in memory.stat, by version of cgroups: what the kernel can drop
    1: ("total_active_file", "total_inactive_file"),
    2: ("active_file", "inactive_file"),
}
LIMITS = {  # by errno: the limit, the option of ulimit and its unit
    errno.EMFILE: (resource.RLIMIT_NOFILE, "-n", 1),
    errno.EFBIG: (resource.RLIMIT_FSIZE, "-f", 1024),
    errno.EAGAIN: (resource.RLIMIT_NPROC, "-u", 1),
}


class Memory(NamedTuple):
    """The bytes that processes may have, and those that are used, without cached files."""

    total: int
    used: int


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


def memory_limit() -> Memory | None:
    """Return the memory of the control group of this process that may have the least, if any.

    Source: `memory.max` of version 2 and `memory.limit_in_bytes` of version 1.
    """
    return min(_memory_limits(), default=None)


def _quotas() -> Iterator[float]:
    for folder, version in _groups("cpu"):
        files = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = " ".join(_read(folder / name) for name in files).split()
        if len(words) == 2 and words[0].isdecimal():  # neither "max" nor -1
            yield int(words[0]) / int(words[1])


def _memory_limits() -> Iterator[Memory]:
    for folder, version in _groups("memory"):
        names = ("max", "current") if version == 2 else ("limit_in_bytes", "usage_in_bytes")
        limit, used = (_read(folder / f"memory.{name}").strip() for name in names)
        if not (limit.isdecimal() and used.isdecimal()):
            continue
        pairs = (line.split() for line in _read(folder / "memory.stat").splitlines())
        cache = sum(int(value) for name, value in pairs if name in _FILE_CACHE[version])
        yield Memory(int(limit), max(0, int(used) - cache))


def _groups(controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the folder of each control group of this process, and its version of cgroups.

    Groups are nested, and each limits those in it. A container sees its own as the uppermost one,
    while the path may be the one that the host sees.
    """
    for line in _read(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / controller if controllers else CONTROL_GROUPS
        for group in (PurePosixPath(path), *PurePosixPath(path).parents):
            yield root / group.relative_to("/"), 1 if controllers else 2


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
