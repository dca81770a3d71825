"""Unsaved changes of presets, kept in drafts.toml in the config folder.

Changes are assignments as `--set` takes them. Each app replaces only the keys that it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from distrain.tui.user_file import UserFile

FILE: UserFile[dict[str, list[str]]] = UserFile("drafts.toml", dict[str, list[str]])


def path() -> Path:
    return FILE.path


def load_changes() -> tuple[dict[str, list[str]], str]:
    """Return the changes by key, and what the user has to know about the file."""
    return FILE.read_or_keep({})


def save_changes(name: str, changes: Sequence[str], before: Sequence[str] = ()) -> str:
    """Save what has changed of one preset since `before`; return what the user has to know.

    Raises OSError.
    """
    new = _by_key(changes)

    def change(table: dict[str, Any], is_new: bool) -> None:
        old = {} if is_new else _by_key(before)
        others = _by_key(table.pop(name, ()))
        kept = {key: text for key, text in others.items() if new.get(key) == old.get(key)}
        kept |= {key: text for key, text in new.items() if text != old.get(key)}
        # In the order of this app: the launcher of a script is assigned after its devices.
        keys = [*(key for key in kept if key not in new), *(key for key in new if key in kept)]
        if keys:
            table[name] = [kept[key] for key in keys]

    return FILE.change(change)


def _by_key(assignments: Iterable[str]) -> dict[str, str]:
    return {text.partition("=")[0]: text for text in assignments}
