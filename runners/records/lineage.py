"""The earlier run from which a resumed script continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from distrain.runners.errors import DistrainError
from distrain.runners.records.state import TRASH, RunState, read_state

# What distrain writes to the folder of a run, apart from hidden files and those of the database.
_OF_RECORD = {
    *("run.json", "config.toml", "meta.json", "dirty.diff", "logs", "token"),
    *("job", "job.sh", "journal.ndjson", "horovod-timeline.json"),
}
# How the names of checkpoints end. Logs and settings are written before there is anything to save.
_CHECKPOINTS = {".bin", ".ckpt", ".distcp", ".pkl", ".pt", ".pth", ".safetensors", ".tar"}


def find_previous(folder: Path) -> Path | None:
    """Return the folder of the run that a script continues; None if it was not resumed.

    A run may end before its script has saved anything. Then it is the last run before that in
    whose folder the script has left a checkpoint, else any file, if there is one.
    """
    before = [*_runs_before(folder)]
    having_checkpoints = (each for each in before if any(map(_is_checkpoint, _own_files(each))))
    having_files = (each for each in before if any(_own_files(each)))
    return next(chain(having_checkpoints, having_files, before), None)


def _runs_before(folder: Path) -> Iterator[Path]:
    """Yield the folders of the run that a run continues, of the one that this continues, …"""
    seen = set()
    with suppress(DistrainError):  # one of them was deleted
        while (parent := _read_state(folder).parent) and parent not in seen:
            seen.add(parent)
            folder = folder.parent / parent
            yield folder


def _read_state(folder: Path) -> RunState:
    removed = folder.parent / TRASH / folder.name
    return read_state(folder if folder.exists() else removed)


def _own_files(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        for own in [path for path in folder.iterdir() if not _is_of_record(path.name)]:
            yield from filter(Path.is_file, (own, *own.rglob("*")))


def _is_checkpoint(path: Path) -> bool:
    return path.suffix in _CHECKPOINTS


def _is_of_record(name: str) -> bool:
    return name.startswith((".", "metrics.")) or name.partition(".damaged-")[0] in _OF_RECORD
