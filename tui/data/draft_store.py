"""Unsaved changes of presets, kept in drafts.toml in the config folder.

Changes are assignments as `--set` takes them. Several apps may write the file: each replaces only
the changes of the preset that it saves.
"""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path

import msgspec
import tomli_w

from distrain.runners.system.files import write_atomically
from distrain.runners.system.home_folders import config_folder


def path() -> Path:
    return config_folder() / "drafts.toml"


def load_changes() -> dict[str, list[str]]:
    """Return the changes by preset name; an empty dict if the file cannot be read."""
    with suppress(OSError, ValueError, RecursionError, msgspec.ValidationError):
        return msgspec.convert(tomllib.loads(path().read_text("utf-8")), dict[str, list[str]])
    return {}


def save_changes(name: str, changes: list[str]) -> None:
    """Save the changes of one preset; raises OSError."""
    all_changes = {**load_changes(), name: changes}
    path().parent.mkdir(parents=True, exist_ok=True)
    text = tomli_w.dumps({preset: texts for preset, texts in all_changes.items() if texts})
    write_atomically(path(), text.encode(), durable=False)
