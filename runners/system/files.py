"""Files that readers always find whole, also after a crash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec


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


def write_json(path: Path, value: Any) -> None:
    """Replace a file with `value` as indented JSON, atomically and durably. Raises OSError."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def sync_folder(folder: Path) -> None:
    """Wait until new names in a folder are on disk, so that they survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
