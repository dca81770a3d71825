"""Starting and ending processes: detaching, parent-death signals, ends of whole process trees.

psutil is imported inside functions, because ranks do not need it.
"""

from __future__ import annotations

import contextlib
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
from typing import TYPE_CHECKING, TextIO

from distrain.runners import formatting
from distrain.runners.system.files import require_regular

if TYPE_CHECKING:
    import psutil

GENTLY = [(signal.SIGTERM, 2.0), (signal.SIGKILL, 3.0)]
AT_ONCE = [(signal.SIGINT, 1.5), (signal.SIGTERM, 1.5), (signal.SIGKILL, 3.0)]
OWNER = "DISTRAIN_OWNER"  # the process that a run must not outlive
MAX_DESCRIPTORS = 1 << 16
# Of torch's sharing strategy file_system. Two seconds after the last process that has used it, it
# removes the shared memory that is left, which nobody else would, and ends.
_SHM_MANAGER = "torch_shm_manager"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(
    expected_parent: int | None = None, number: signal.Signals = signal.SIGKILL
) -> None:
    """Make the kernel send this process a signal when its parent dies. Linux only.

    No signal is sent for a parent that died before the call: with `expected_parent`, its PID, the
    process exits then.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if expected_parent is not None and os.getppid() != expected_parent:
        os._exit(1)


def accept_sigterm_from_parent() -> None:
    """Let SIGTERM end this process only if its parent sent it.

    A scheduler signals every process of a job; only the node agent handles it. Call this before
    threads are started; child processes start with SIGTERM blocked.
    """
    number = signal.SIGTERM
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def wait() -> None:
        while signal.sigwaitinfo({number}).si_pid != os.getppid():
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, name="sigterm", daemon=True).start()


def catch_user_signals(*numbers: signal.Signals) -> None:
    """Do nothing on SIGUSR1 and SIGUSR2, or only on `numbers`: they are for the user's program.

    A scheduler sends them to every process of a job, as with the option --signal of sbatch.
    Programs that this process starts begin with the default, or ignore them where this one was
    started so.
    """
    for number in numbers or (signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as after `trap "" USR1` in a shell
            signal.signal(number, lambda *_: None)


def ignore_user_signals() -> None:
    """Ignore SIGUSR1 and SIGUSR2, here and in programs that this process starts.

    A loader process, the server that forks it, or a compiler must not end by them either.
    """
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def blocks_sigterm() -> bool:
    """Return whether this process was started by one that called `accept_sigterm_from_parent`."""
    return signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def run_detached(work: Callable[[Callable[[], None]], int], log: Path) -> int:
    """Fork a process that outlives the caller and prints to a log.

    `work` is called in it, with a function that it calls when it is ready, and returns its exit
    code. In the caller the result is 0 once the process is ready, 1 if it ends before or the log
    cannot be written. The log says which signal has ended it before.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        output = os.open(log, flags, 0o644)  # in a record that may be a stranger's
        require_regular(os.fstat(output))
    except OSError:
        return 1
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        if os.read(reading, 1):
            return 0
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code < 0:
            with contextlib.suppress(OSError):
                os.write(output, f"it was killed by {formatting.signal_name(-code)}\n".encode())
        return 1
    os.setsid()
    no_input = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((0, no_input), (1, output), (2, output)):
        os.dup2(target, number)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    catch_user_signals()

    def report_ready() -> None:
        os.write(writing, b"1")
        os.close(writing)

    return work(report_ready)


def start(
    module: str,
    *arguments: str,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a module that detaches itself, in `cwd` and with additional variables; return its exit
    code.

    A Ctrl-C in the terminal is for the caller only: if one hits the module before it is in its own
    session, the module is started again. KeyboardInterrupt in the caller kills the module, and
    after any other exception it goes on. Where the caller has no stdout or stderr, as a daemon, the
    module gets the null device, so that no file which it opens takes their place. With
    PYTHONINSPECT, the module and its ranks would end with another exit code than their own.
    """
    variables = {**os.environ, **(environment or {})}
    variables.pop("PYTHONINSPECT", None)
    code = -signal.SIGINT
    while code == -signal.SIGINT:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            stdout=None if _is_open(sys.__stdout__) else subprocess.DEVNULL,
            stderr=None if _is_open(sys.__stderr__) else subprocess.DEVNULL,
        )
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.kill()
            raise
    return code


def _is_open(stream: TextIO | None) -> bool:
    if stream is None:
        return False
    try:
        os.fstat(stream.fileno())
    except (OSError, ValueError):  # a daemon closes descriptors, or the stream itself
        return False
    return True


def process_identity() -> dict[str, float | None]:
    """Return the fields of run.json that identify this process, even if its pid is reused."""
    started, since_boot = start_times(os.getpid())
    return {
        "supervisor_pid": os.getpid(),
        "supervisor_started": started,
        "supervisor_since_boot": since_boot,
    }


def owner_variables() -> dict[str, str]:
    """Return the variables that make this process the owner of the runs that it launches."""
    started, since_boot = start_times(os.getpid())
    return {OWNER: f"{os.getpid()}:{started}:{since_boot or ''}"}


def owner_is_gone() -> bool:
    """Return whether this process has an owner that no longer runs."""
    pid, *starts = os.environ.get(OWNER, "").split(":")
    return bool(pid) and not is_running(int(pid), *(float(start) for start in starts if start))


def start_times(pid: int) -> tuple[float, float | None]:
    """Return when a process started: in Unix seconds, and on Linux in seconds since boot.

    The first one is another one once the clock has been set, the second one in another time
    namespace. Raises psutil.NoSuchProcess.
    """
    import psutil

    started: float = psutil.Process(pid).create_time()
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return started, None
    ticks = int(stat.rpartition(b")")[2].split()[19])  # after the program's name
    return started, ticks / os.sysconf("SC_CLK_TCK")


def is_running(pid: int, started: float | None, since_boot: float | None = None) -> bool:
    """Return whether a process that started at one of these `start_times` still runs.

    Without `started`, any process with this PID counts.
    """
    import psutil  # 30 ms that a list of finished runs does not need

    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
        now_started, now_since_boot = start_times(pid)
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False
    except psutil.AccessDenied:
        return True
    # One second of tolerance: corrections of the clock move create_time.
    is_same = started is None or abs(now_started - started) <= 1.0
    return is_same or (since_boot is not None and since_boot == now_since_boot)


def is_suspended(pid: int) -> bool:
    """Return whether a process was stopped by a signal, as by Ctrl-Z, and can be continued."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector in the block, and exempt from it what exists at its end.

    Collecting takes a tenth of the time of importing torch, and finds nothing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def descriptor_limit() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Allow this process as many open files as the system permits.

    A supervisor has one for each rank, the app three for each live run.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if limit > descriptor_limit():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that none is lost. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes  # a list of runs does without

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(pid: int | None = None) -> list[psutil.Process]:
    """Return all running descendants of `pid` (default: this process), without zombies.

    torch's manager of shared memory is left out, too: it ends by itself.
    """
    import psutil

    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in found if _is_to_end(process)]


def end_descendants(steps: Iterable[tuple[signal.Signals, float]]) -> None:
    """Send each signal to all descendants and wait up to so many seconds, until none is left.

    The list is made again for each step, because a descendant may start others while it ends.
    """
    import psutil

    for number, seconds in steps:
        for process in descendants():
            with contextlib.suppress(psutil.Error):  # it has ended, or runs as another user
                process.send_signal(number)
        deadline = time.monotonic() + seconds
        while descendants() and time.monotonic() < deadline:
            time.sleep(0.02)
        if not descendants():
            return


def kill_by_variable(name: str, value: str) -> None:
    """Kill all processes of this user that were started with this value of a variable."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real == os.getuid() and process.environ().get(name) == value:
                process.kill()


def lock_holder(descriptor: int) -> int | None:
    """Return the process that holds the lock of an open file; None where that is not known."""
    inode = f":{os.fstat(descriptor).st_ino}"
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as locks:  # Linux
        for line in locks:
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(inode):
                return int(words[4])
    return None


def _is_to_end(process: psutil.Process) -> bool:
    import psutil

    try:
        is_alive = process.status() != psutil.STATUS_ZOMBIE
        return bool(is_alive and process.name() != _SHM_MANAGER)
    except psutil.NoSuchProcess:
        return False
