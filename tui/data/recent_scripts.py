"""Scripts that were launched from the app, kept in scripts.toml in the config folder.

Each belongs to the folder that it was launched from, because its path starts there.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from distrain.runners import formatting
from distrain.runners.config.presets import Preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.tui.user_file import UserFile

MOST = 100  # scripts of all folders
SHOWN = 5  # of one folder


class _Entry(msgspec.Struct, frozen=True):
    folder: str
    config: dict[str, Any]


class _File(msgspec.Struct, frozen=True):
    scripts: list[_Entry] = []


FILE = UserFile("scripts.toml", _File)


def path() -> Path:
    return FILE.path


def load() -> tuple[list[RunConfig], str]:
    """Return the scripts of the current folder, the last one first, and what the user has to know
    about the file.
    """
    here = os.getcwd()
    found: list[RunConfig] = []
    file, notice = FILE.read_or_keep(_File())
    for entry in file.scripts:
        if entry.folder == here and len(found) < SHOWN:
            with suppress(ConfigError):
                found.append(RunConfig.from_dict(entry.config))
    return found, notice


def remember(config: RunConfig) -> str:
    """Put a script in front of those of the current folder; return what the user has to know.

    Raises OSError.
    """
    here = os.getcwd()
    words = config.script.words
    entry = _Entry(here, tomllib.loads(config.to_toml(whole=False)))

    def change(table: dict[str, Any], _: bool) -> None:
        old = msgspec.convert(table, _File).scripts
        others = [each for each in old if not _is_same(each, here, words)]
        table["scripts"] = msgspec.to_builtins([entry, *others][:MOST])

    return FILE.change(change)


def as_presets(configs: Iterable[RunConfig]) -> list[Preset]:
    """Return scripts as entries of the list of presets, named by their command lines."""
    return [
        Preset(name=config.workload, origin="script", path=config.script.path or "", config=config)
        for config in configs
    ]


def _is_same(entry: _Entry, folder: str, words: list[str]) -> bool:
    if entry.folder != folder:
        return False
    with suppress(ConfigError):
        return RunConfig.from_dict(entry.config).workload == formatting.shell_words(words)
    return True  # no longer valid
