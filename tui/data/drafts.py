"""Drafts: what a person has changed of presets and not saved, in a file in the config folder.

Each change is as `--set` takes it. Several apps may write: each only what it knows better.
"""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path

import msgspec
import tomli_w

from runners.presets import user_folder
from runners.state import write_atomically


def path() -> Path:
    return user_folder().parent / "drafts.toml"


def kept() -> dict[str, list[str]]:
    """The changes by the name of the preset; none where the file cannot be read."""
    with suppress(OSError, ValueError, RecursionError, msgspec.ValidationError):
        return msgspec.convert(tomllib.loads(path().read_text("utf-8")), dict[str, list[str]])
    return {}


def keep(name: str, changes: list[str]) -> None:
    """Keep the changes of one preset; raises OSError."""
    found = {**kept(), name: changes}
    path().parent.mkdir(parents=True, exist_ok=True)
    text = tomli_w.dumps({preset: texts for preset, texts in found.items() if texts})
    write_atomically(path(), text.encode(), durable=False)
