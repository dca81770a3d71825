"""The trash of a runs folder: removed runs and benches are moved there and can be restored."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.records.checkpoint_files import last_checkpoint
from distrain.runners.records.reader import Record, list_records
from distrain.runners.records.state import TRASH

_SEPARATOR = "~"  # before a number, where a folder of that name is in the trash already


def remove(record: Record) -> Path:
    """Move a record to the trash of its runs folder and return its new path.

    Raises DistrainError while the run is live or another one needs it, RunsFolderError.
    """
    if record.live:
        raise DistrainError(f"{record.id} is {record.status}; stop it before removing it")
    require_unused(record)
    record.close()
    return move_to_trash(record.dir)


def require_unused(record: Record) -> None:
    """Raise DistrainError if a live run of the same folder begins with a checkpoint of this one.

    That run needs it until it has a checkpoint of its own.
    """
    for other in list_records(record.dir.parent):
        if other.live and other.id != record.id and _begins_with(record, other):
            text = (
                f"{record.id} has the checkpoint from which {other.id} ({other.status}) continues"
            )
            raise DistrainError(f"{text}; `distrain stop {other.id}` ends it")


def _begins_with(record: Record, other: Record) -> bool:
    with suppress(DistrainError):  # what cannot be read does not run
        path = other.config.checkpoint.load or ""
        is_of_record = path and Path(path).resolve().is_relative_to(record.dir.resolve())
        return bool(is_of_record) and last_checkpoint(other.dir / "checkpoints") is None
    return False


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
    name = folder.name.partition(_SEPARATOR)[0]
    return _move(folder, folder.parents[1] / name)


def _move(source: Path, target: Path) -> Path:
    if os.path.lexists(target):
        raise RunsFolderError(f"{target} exists already; rename one of the two first")
    try:
        target.parent.mkdir(exist_ok=True)
        return source.rename(target)
    except OSError as error:
        raise RunsFolderError(f"cannot move {source} to {target}: {error.strerror}") from None
