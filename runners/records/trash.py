"""The trash of a runs folder: removed runs and benches are moved there and can be restored."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.records.reader import Record, list_records
from distrain.runners.records.state import TRASH

_SEPARATOR = "~"  # before a number, where a folder of that name is in the trash already


def remove(record: Record) -> Path:
    """Move a record to the trash of its runs folder and return its new path.

    Raises DistrainError while the run is live, RunsFolderError. `require_unused` comes first.
    """
    if record.live:
        raise DistrainError(f"{record.id} is {record.status}; stop it before removing it")
    record.close()
    return move_to_trash(record.dir)


def require_unused(records: Sequence[Record]) -> None:
    """Raise DistrainError if a live run of their folder begins with a checkpoint of one of them.

    That run needs it until it has a checkpoint of its own. Reads all records of the folder.
    """
    folders = {record.dir.resolve(): record for record in records}
    for other in list_records(records[0].dir.parent) if records else ():
        for folder in _needed_folders(other):
            if folder in folders:
                text = f"{folders[folder].id} has the checkpoint from which {other.id}"
                text += f" ({other.status}) continues; `distrain stop {other.id}` ends it"
                raise DistrainError(text)


def _needed_folders(record: Record) -> Sequence[Path]:
    """Return the folders that hold the checkpoint with which a live run begins."""
    try:
        if record.live and record.config.checkpoint.load and not record.last_checkpoint:
            return Path(record.config.checkpoint.load).resolve().parents
    except DistrainError:  # what cannot be read does not run
        pass
    return ()


def move_to_trash(folder: Path) -> Path:
    """Move a folder to the trash of the folder that it is in and return its new path.

    Raises RunsFolderError.
    """
    trash = folder.parent / TRASH
    target = trash / folder.name
    numbers = count(2)
    while os.path.lexists(target):
        target = trash / f"{folder.name}{_SEPARATOR}{next(numbers)}"
    return _move(folder, target)


def find_in_trash(runs_dir: Path, wanted: str) -> Record:
    """Return a removed record by its id or name, of several the newest; raises DistrainError."""
    for record in reversed(list_records(Path(runs_dir) / TRASH)):
        if wanted and wanted in (record.id, record.name):
            return record
    raise DistrainError(f"there is no {wanted or 'run without a name'} in the trash of {runs_dir}")


def restore(folder: Path) -> Path:
    """Move a folder from the trash back to where it was and return its path.

    Raises RunsFolderError.
    """
    name = re.sub(rf"{_SEPARATOR}\d+$", "", folder.name)
    return _move(folder, folder.parents[1] / name)


def _move(source: Path, target: Path) -> Path:
    if os.path.lexists(target):
        raise RunsFolderError(f"{target} exists already; rename one of the two first")
    try:
        with suppress(FileExistsError):
            target.parent.mkdir()
            _share_as(source.parent, target.parent)
        if not source.is_symlink():
            return source.rename(target)
        target.symlink_to(os.path.realpath(source))  # a relative link would lead elsewhere
        source.unlink()
        return target
    except OSError as error:
        raise RunsFolderError(f"cannot move {source} to {target}: {error.strerror}") from None


def _share_as(runs_dir: Path, trash: Path) -> None:
    """Let whoever can write to the runs folder write to its new trash too."""
    with suppress(OSError):  # not every file system has owners and modes
        descriptor = os.open(trash, os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.listdir(descriptor):  # somebody has put another folder in its place
                return
            status = runs_dir.stat()
            mode = stat.S_IMODE(status.st_mode)
            try:
                os.chown(descriptor, -1, status.st_gid)
            except OSError:  # of somebody who is not in its group: others have no more rights
                mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
            os.chmod(descriptor, mode)
        finally:
            os.close(descriptor)
