"""Files that readers always find whole, also after a crash, and files that are not trusted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

LOCK_POLL_S = 0.01
UNLOCKED_S = 10.0  # from the creation of a draft until its writer has surely locked it
MOST_BYTES = 1 << 24  # of a file that is read whole; to decode them takes about a second


def open_regular(path: Path | str) -> BinaryIO:
    """Open a file that somebody else may have made, for reading.

    Raises OSError, also for a symbolic link, a pipe or a device: these could lead elsewhere, or
    block forever.
    """
    descriptor, _ = _open_descriptor(path)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path | str) -> bytes:
    """Return the content of a file, under the conditions of `open_regular`. Raises OSError."""
    descriptor, size = _open_descriptor(path)
    try:
        if size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES:,} bytes")
        return os.read(descriptor, size)  # a larger number would allocate as much memory first
    finally:
        os.close(descriptor)


def read_named(path: Path) -> str:
    """Return the text of a file that a person has named: a pipe too, but nothing without an end.

    Raises OSError and UnicodeDecodeError.
    """
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES:,} bytes")
    return data.decode()


def _open_descriptor(path: Path | str) -> tuple[int, int]:
    """Return the descriptor of an open file, and its size in bytes."""
    require_regular(os.lstat(path))  # before it is opened, because that may affect a device
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        found = os.fstat(descriptor)
        require_regular(found)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found.st_size


def require_regular(found: os.stat_result) -> None:
    """Raise OSError if this is the `lstat` of a link, a pipe, a device or a folder."""
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Replace a file in one step: readers see either the old content or the new.

    If `durable`, the new content also survives a power failure. Raises OSError.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def path_of(descriptor: int, path: Path) -> Path:
    """Return where an open folder is now; a path without a folder where it was deleted.

    `path` is where it was: the answer where the system does not tell, as on macOS.
    """
    with contextlib.suppress(OSError):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return path


def free_name(path: Path, word: str) -> Path:
    """Return the first path `PATH.WORD-N` at which there is nothing."""
    numbers = itertools.count(1)
    paths = (path.with_name(f"{path.name}.{word}-{number}") for number in numbers)
    return next(found for found in paths if not os.path.lexists(found))


def lock_within(descriptor: int, seconds: float) -> bool:
    """Lock a file or folder; return False where another process keeps it locked for so long.

    Raises OSError where the file system has no locks.
    """
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOCK_POLL_S)


def is_locked(path: Path) -> bool:
    """Return whether a process has locked a file or folder, also one of another container."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # several may ask at the same time
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        return False
    finally:
        os.close(descriptor)
    return False


def last_modified(folder: Path, names: Iterable[str]) -> float:
    """Return the Unix time at which one of these files was written last; 0 where there is none."""
    times = [0.0]
    for name in names:
        with contextlib.suppress(OSError):
            times.append(os.lstat(folder / name).st_mtime)
    return max(times)


def move_folder_aside(path: Path) -> None:
    """Rename a folder to `PATH.damaged-N`, because no file can replace one. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        path.rename(free_name(path, "damaged"))


@contextlib.contextmanager
def open_replacement(path: Path) -> Iterator[IO[str]]:
    """Open a UTF-8 file that takes the place of `path` at the end of the block, not after an error.

    What cannot be replaced, such as a pipe or /dev/stdout, is opened itself. Raises OSError, also
    for a link of another user, which may lead to a file of this one.
    """
    _refuse_foreign_link(path)
    if path.exists() and not _is_replaceable(path):
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    target = Path(os.path.realpath(path))  # a link stays one
    _remove_dead_drafts(target)
    draft = target.with_name(f"{_draft_prefix(target)}{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # until it is no draft any more
        with open(os.dup(descriptor), "w", encoding="utf-8", newline="") as file:
            yield file
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(target, draft)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _remove_dead_drafts(target: Path) -> None:
    """Remove drafts of a file whose writers were killed; one that lives holds a lock."""
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):
            if re.fullmatch(re.escape(_draft_prefix(target)) + "[0-9a-f]{8}", name):
                with contextlib.suppress(OSError), open_regular(target.parent / name) as draft:
                    fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    found = os.fstat(draft.fileno())
                    # A new one is locked before anything is written.
                    if found.st_size or time.time() - found.st_mtime > UNLOCKED_S:
                        os.unlink(target.parent / name)


def size_of_draft(path: Path) -> int:
    """Return how many bytes `open_replacement` has written so far for a path."""
    target = Path(os.path.realpath(path))
    prefix = _draft_prefix(target)
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        drafts = (each for each in entries if each.name.startswith(prefix))
        return max((each.stat().st_size for each in drafts), default=0)
    return 0


def _draft_prefix(target: Path) -> str:
    return f".{target.name[:200]}."


def _refuse_foreign_link(path: Path) -> None:
    """Raise OSError where a path is a link that another user has made, as in /tmp."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        is_foreign = found.st_uid not in (0, os.getuid())
        if stat.S_ISLNK(found.st_mode) and is_foreign and not _is_open_file(path):
            raise OSError(errno.ELOOP, "it is a link of another user, which is not followed")


def _is_open_file(path: Path) -> bool:
    """Return whether a path such as /dev/stdout is an open file, whatever that is."""
    return path.absolute().parts[1:2] in (("dev",), ("proc",))


def _is_replaceable(path: Path) -> bool:
    """Return whether a file that exists is a regular one that may be written and renamed over."""
    if _is_open_file(path):
        return False
    target = os.path.realpath(path)
    writable = os.access(target, os.W_OK) and os.access(os.path.dirname(target), os.W_OK)
    return writable and path.is_file()


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # of an OSError: a full disk, or a full quota


def write_json(path: Path, value: Any, *, in_place: bool = False) -> None:
    """Replace a file with `value` as indented JSON, atomically and durably. Raises OSError.

    With `in_place`, a file that exists is overwritten where the disk has no room for a second one,
    without indentation, so that it does not need more room than it has: a reader may see half of it
    for a moment.
    """
    try:
        write_atomically(path, encode_json(value))
    except OSError as error:
        if not (in_place and error.errno in NO_ROOM and path.exists()):
            raise
        _overwrite(path, encode_compact_json(value))


def _overwrite(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(file.fileno(), 0, len(content))  # all of it fits, or none is written
        file.write(content)
        file.truncate()


def encode_json(value: Any) -> bytes:
    """Return `value` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def encode_compact_json(value: Any) -> bytes:
    """Return `value` as JSON on one line: what `write_json` writes where there is little room."""
    return msgspec.json.encode(value) + b"\n"


def sync_folder(folder: Path) -> None:
    """Wait until new names in a folder are on disk, so that they survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
