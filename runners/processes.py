"""Processes that begin fast and end for sure: parent-death signals, adoption of orphans, bounded
ends of whole trees. psutil is loaded by the supervisor only: ranks have no use for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

GENTLY = [(signal.SIGTERM, 2.0), (signal.SIGKILL, 3.0)]
AT_ONCE = [(signal.SIGINT, 1.5), (signal.SIGTERM, 1.5), (signal.SIGKILL, 3.0)]
OWNER = "DISTRAIN_OWNER"  # who a run belongs to that must not outlive it
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
MOST_DESCRIPTORS = 1 << 16


def die_with_parent(
    expected_parent: int | None = None, number: signal.Signals = signal.SIGKILL
) -> None:
    """Have the kernel kill this process, or send it that signal, when its parent dies (Linux;
    elsewhere nothing).

    The signal is not kept for a parent that died before the call, so `expected_parent` is
    compared afterwards.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if expected_parent is not None and os.getppid() != expected_parent:
        os._exit(1)


def ended_by_parent_only() -> None:
    """Let SIGTERM end this process where its parent has sent it, and nobody else: a scheduler sends
    it to every process of a job, of which one answers for all. To be called before there are
    threads; children begin with SIGTERM blocked.
    """
    number = signal.SIGTERM
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def wait() -> None:
        while signal.sigwaitinfo({number}).si_pid != os.getppid():
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, name="sigterm", daemon=True).start()


def blocks_sigterm() -> bool:
    """Whether this process was begun by one that is `ended_by_parent_only`."""
    return signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def detached(work: Callable[[Callable[[], None]], int], log: Path) -> int:
    """Fork a process that goes on without whoever asked for it, and writes to a log. The caller
    gets 0 once that calls what the work is given, 1 if it ends before.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return 0 if os.read(reading, 1) else 1
    os.setsid()
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((0, nothing), (1, said), (2, said)):
        os.dup2(target, number)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def under_way() -> None:
        os.write(writing, b"1")
        os.close(writing)

    return work(under_way)


def start(
    module: str,
    *arguments: str,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Have a module of ours detach itself; its exit code. The terminal's Ctrl-C is the caller's
    business alone: where one comes before the new session is there, it is begun again.
    """
    while True:
        code = subprocess.run(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ).returncode
        if code != -signal.SIGINT:
            return code


def mark_as_owner() -> dict[str, str]:
    """What makes this process the owner of the runs that it launches with it."""
    import psutil

    return {OWNER: f"{os.getpid()}:{psutil.Process().create_time()}"}


def owner_is_gone() -> bool:
    """Whether there was an owner who lives no more."""
    pid, _, started = os.environ.get(OWNER, "").partition(":")
    return bool(pid) and not is_running(int(pid), float(started))


def is_running(pid: int, started: float | None) -> bool:
    """Whether a process lives, and is not a later one of the same pid."""
    import psutil  # 30 ms that a list of finished runs need not pay

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        # One second of play: the clock's correction moves create_time.
        return started is None or abs(process.create_time() - started) <= 1.0
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False
    except psutil.AccessDenied:
        return True


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Keep the garbage collector away while a rank is set up, and for good from what that leaves.

    It takes a tenth of the import of torch, and finds nothing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def descriptors() -> int:
    """How many this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def more_descriptors() -> None:
    """As many as the system lets us, within reason: each rank takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if most > descriptors():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent died, so that none escapes (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(pid: int | None = None) -> list[psutil.Process]:
    """All living descendants of `pid` (default: this process), zombies left out."""
    import psutil

    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in found if _lives(process)]


def end_descendants(steps: Iterable[tuple[signal.Signals, float]]) -> None:
    """Send each signal to all descendants and wait so many seconds for them, until none lives.

    A descendant may start another while it ends, hence the fresh list at each step.
    """
    import psutil

    for number, seconds in steps:
        for process in descendants():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        deadline = time.monotonic() + seconds
        while descendants() and time.monotonic() < deadline:
            time.sleep(0.02)
        if not descendants():
            return


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
