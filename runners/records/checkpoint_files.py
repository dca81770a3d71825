"""Which checkpoint of a run is its last: the one that ranks continue from."""

from __future__ import annotations

import re
from pathlib import Path

_is_name = re.compile(r"step-\d{8,}\.pt", re.ASCII).fullmatch  # copies have others


def last_checkpoint(folder: Path) -> Path | None:
    """Return the file that `last.pt` names, or where that was deleted the newest before it.

    None where the folder `checkpoints/` of a run has none that is a file of the run itself.
    """
    paths = [folder / "last.pt", *reversed(numbered_files(folder))]
    return next(filter(None, (_own_file(path, folder.parent) for path in paths)), None)


def step_of_last(folder: Path) -> int | None:
    """Return the step after which the last checkpoint was saved; None where there is none.

    A copy that somebody has put in the place of the link `last.pt` is of the newest checkpoint.
    """
    path = last_checkpoint(folder)
    if path and not _is_name(path.name):
        files = numbered_files(folder)
        return step_of(files[-1]) if files else 0
    return step_of(path) if path else None


def numbered_files(folder: Path) -> list[Path]:
    """Return the files step-N.pt of a folder, in the order of the steps."""
    return sorted((path for path in folder.glob("step-*.pt") if _is_name(path.name)), key=step_of)


def step_of(path: Path) -> int:
    """Return the step after which the checkpoint step-N.pt was saved."""
    return int(path.stem.removeprefix("step-"))


def _own_file(path: Path, run_folder: Path) -> Path | None:
    """Return the file at a path or behind a link, if it is one of the run."""
    try:
        path = path.resolve()
        is_own = path.is_file() and path.is_relative_to(run_folder.resolve())
    except (OSError, RuntimeError):  # a link to itself
        return None
    return path if is_own else None
