"""The folder of this user in which processes of different terminals find each other."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from distrain.runners.errors import DistrainError

FOLDER_VARIABLE = "DISTRAIN_CLAIMS_DIR"


def private_folder(name: str) -> Path:
    """Return a subfolder that only this user can write to, made where there is none.

    It is neither in $XDG_RUNTIME_DIR, which goes with the last login, nor in $TMPDIR, which differs
    between shells: all processes have to agree on it. Raises DistrainError.
    """
    root = Path(os.environ.get(FOLDER_VARIABLE) or f"/tmp/distrain-{os.getuid()}")
    for path in (root, root / name):
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise unusable(path, error.strerror) from None
        if not is_private(path):
            raise unusable(path, "it is not a folder that only you can write to")
    return root / name


def is_private(path: Path) -> bool:
    """Return whether this is a folder of this user that nobody else can write to."""
    try:
        found = path.lstat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_own and not stat.S_IMODE(found.st_mode) & 0o022


def unusable(path: Path, reason: str | None) -> DistrainError:
    """Return the error that a private folder, or a file in it, cannot be used."""
    return DistrainError(
        f"{path} cannot be used: {reason}; choose another folder with ${FOLDER_VARIABLE}"
    )
