"""Names of reruns: no two runs or benches of a folder should have the same."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from distrain.runners.errors import RunsFolderError
from distrain.runners.records.meta import read_meta


def next_free_name(name: str, runs_dir: Path) -> str:
    """Return the name of a rerun: that of "base" is "base-2", of "base-2" it is "base-3", or the
    next one that no run or bench in the folder has. What has no name gets none. Raises
    RunsFolderError.
    """
    if not name:
        return ""
    try:
        with os.scandir(runs_dir) as entries:
            taken = {read_meta(Path(entry.path)).name for entry in entries if entry.is_dir()}
    except OSError as error:
        raise RunsFolderError(f"cannot read the runs folder {runs_dir}: {error.strerror}") from None
    stem, _, number = name.rpartition("-")
    if not (number.isdecimal() and stem in taken):  # "lr-1" is a rerun of "lr" only if there is one
        stem = name
    return next(free for n in count(2) if (free := f"{stem}-{n}") not in taken)
