"""Unsaved changes of presets, kept in drafts.toml in the config folder.

Changes are assignments as `--set` takes them. Each app replaces only the changes of the preset that
it saves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distrain.tui.user_file import UserFile

FILE: UserFile[dict[str, list[str]]] = UserFile("drafts.toml", dict[str, list[str]])


def path() -> Path:
    return FILE.path


def load_changes() -> tuple[dict[str, list[str]], str]:
    """Return the changes by key, and what the user has to know about the file."""
    return FILE.read_or_keep({})


def save_changes(name: str, changes: list[str]) -> str:
    """Save the changes of one preset; return what the user has to know. Raises OSError."""

    def change(table: dict[str, Any], _: bool) -> None:
        table.pop(name, None)
        if changes:
            table[name] = changes

    return FILE.change(change)
