"""Scripts and preset files that were added in the app, kept in scripts.toml in the config folder.

Each belongs to the folder that it was added in: the path of a script starts there.
"""

from __future__ import annotations

import os
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from distrain.runners import formatting
from distrain.runners.config import presets
from distrain.runners.config.presets import Preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.tui.user_file import UserFile

MOST = 100  # scripts of all folders, and as many preset files
SHOWN = 5  # of one folder


class _Entry(msgspec.Struct, frozen=True):
    folder: str
    config: dict[str, Any]


class _PresetFile(msgspec.Struct, frozen=True):
    folder: str
    path: str  # absolute


class _File(msgspec.Struct, frozen=True):
    scripts: list[_Entry] = []
    presets: list[_PresetFile] = []


FILE = UserFile("scripts.toml", _File)


def path() -> Path:
    return FILE.path


def load() -> tuple[list[Preset], str]:
    """Return the preset files and scripts of the current folder, the last one of each first, and
    what the user has to know about the file. Preset files that are gone are left out.
    """
    here = os.getcwd()
    found: list[RunConfig] = []
    file, notice = FILE.read_or_keep(_File())
    for entry in file.scripts:
        if entry.folder == here and len(found) < SHOWN:
            with suppress(ConfigError):
                found.append(RunConfig.from_dict(entry.config))
    paths = [Path(each.path) for each in file.presets if each.folder == here]
    files = [presets.list_file(path) for path in paths if os.path.exists(path)][:SHOWN]
    return [*files, *map(as_preset, found)], notice


def remember_preset(path: str) -> str:
    """Put a preset file in front of those of the current folder; otherwise as `remember`."""
    entry = _PresetFile(os.getcwd(), path)

    def change(table: dict[str, Any], _: bool) -> None:
        old = msgspec.convert(table, _File).presets
        others = [each for each in old if each != entry]
        table["presets"] = msgspec.to_builtins([entry, *others][:MOST])

    return FILE.change(change)


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


def as_preset(config: RunConfig) -> Preset:
    """Return a script as an entry of the list of presets, named by its command line."""
    return Preset(
        name=config.workload, origin="script", path=config.script.path or "", config=config
    )


def _is_same(entry: _Entry, folder: str, words: list[str]) -> bool:
    if entry.folder != folder:
        return False
    with suppress(ConfigError):
        return RunConfig.from_dict(entry.config).workload == formatting.shell_words(words)
    return True  # no longer valid
