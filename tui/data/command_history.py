"""Lines that were typed after `:`, kept in command_history in the config folder, oldest first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from distrain.runners.system.files import read_regular, write_atomically
from distrain.runners.system.home_folders import config_folder

MOST = 200  # lines


def path() -> Path:
    return config_folder() / "command_history"


def load() -> list[str]:
    """Return the lines; an empty list if the file cannot be read."""
    with suppress(OSError, ValueError):
        return read_regular(os.path.realpath(path())).decode().splitlines()
    return []


def add(line: str) -> None:
    """Add a line as the newest one. A folder that cannot be written to loses it."""
    lines = [*(each for each in load() if each != line), line][-MOST:]
    with suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path(), ("\n".join(lines) + "\n").encode(), durable=False)
