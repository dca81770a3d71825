"""The temporary folder of a run on this host: its socket, and what its processes leave behind.

A process that is killed cannot remove its temporary files, so those of a run are in one folder,
which the supervisor removes at the end. Where the supervisor is killed too, the next one on this
host removes it: the lock in it shows that its owner was on this host and is gone. It also ends the
processes that name the folder in their environment: ranks and loader processes die with their
parents, but a child that hangs in `fork` could not ask the kernel for that. TMPDIR stays the
user's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from distrain.runners.system.processes import kill_by_variable

VARIABLE = "DISTRAIN_SCRATCH"  # the folder, for the processes of the run on this host
PREFIX = "distrain-"
LOCK = "lock"
MAX_TMPDIR_BYTES = 70  # a socket's path has 107 bytes, and some schedulers' TMPDIR is long
MAX_HOST_NAME_BYTES = 255
SEMAPHORES = Path("/dev/shm")  # where Linux has the named semaphores of multiprocessing

_open_folders: set[Path] = set()  # of this process


@contextlib.contextmanager
def scratch_folder(kind: str = "", *, for_sockets: bool = True) -> Iterator[Path]:
    """Create a folder that only this user can read, and remove it after the block.

    `kind` is part of its name. A folder for sockets is in /tmp if the path of the usual one is too
    long. Folders of processes that were killed are removed first.
    """
    parent = Path(_short_tmpdir() if for_sockets else tempfile.gettempdir())
    _remove_leftovers(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}", dir=parent))
    _open_folders.add(folder)
    try:
        with _locked(folder):
            yield folder
    finally:
        _remove(folder)
        _open_folders.discard(folder)


def remove_scratch_folders() -> None:
    """Remove the folders of this process, before an exit that leaves no `with` block."""
    for folder in list(_open_folders):
        _remove(folder)


def use_scratch_folder() -> None:
    """Let multiprocessing put sockets and semaphores of this process where the run removes them.

    Its children inherit that. Loader processes never remove their own. It changes nothing where the
    run is on another host.
    """
    folder = os.environ.get(VARIABLE, "")
    if not os.path.isdir(folder):
        return
    from multiprocessing import process

    # There is no public way. These two settings have existed since Python 2.6.
    config = getattr(process.current_process(), "_config", {})
    config["tempdir"] = folder
    config["semprefix"] = f"/{_semaphore_prefix(Path(folder))}"


def scratch_parent() -> str | None:
    """Return the folder for temporary files of a launcher; None for the usual one."""
    folder = os.environ.get(VARIABLE, "")
    return folder if os.path.isdir(folder) else None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep a lock in the folder during the block, where its file system has locks."""
    draft = folder / f"{LOCK}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, _host_name())
            draft.rename(folder / LOCK)  # it is never there without being locked
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(parent: Path) -> None:
    """Remove the folders of supervisors and node agents that were killed, and their processes."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if _is_own(folder) and _is_abandoned(folder / LOCK):
                kill_by_variable(VARIABLE, str(folder))
                _remove(folder)


def _is_own(folder: Path) -> bool:
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    return is_private and found.st_uid == os.getuid()


def _is_abandoned(lock: Path) -> bool:
    """Return whether this host has made this lock, and nobody holds it.

    Hosts may share the folder, but on some file systems not the locks. Raises OSError where there
    is none.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if os.read(descriptor, MAX_HOST_NAME_BYTES) != _host_name():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _host_name() -> bytes:
    return os.fsencode(socket.gethostname())


def _remove(folder: Path) -> None:
    for semaphore in SEMAPHORES.glob(f"sem.{_semaphore_prefix(folder)}-*"):
        semaphore.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for content in folder.iterdir():
            if content.name != LOCK:  # the last, so that the rest is found if this is interrupted
                shutil.rmtree(content, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _semaphore_prefix(folder: Path) -> str:
    return f"mp-{folder.name}"


def _short_tmpdir() -> str:
    default = tempfile.gettempdir()
    return default if len(os.fsencode(default)) < MAX_TMPDIR_BYTES else "/tmp"
