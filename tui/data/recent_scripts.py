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
import tomli_w

from distrain.runners import formatting
from distrain.runners.config.presets import Preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.system.files import write_atomically
from distrain.runners.system.home_folders import config_folder

MOST = 100  # scripts of all folders
SHOWN = 5  # of one folder


class _Entry(msgspec.Struct, frozen=True):
    folder: str
    config: dict[str, Any]


class _File(msgspec.Struct, frozen=True):
    scripts: list[_Entry] = []


def path() -> Path:
    return config_folder() / "scripts.toml"


def load() -> list[RunConfig]:
    """Return the scripts of the current folder, the last one first; [] if the file is invalid."""
    here = os.getcwd()
    found: list[RunConfig] = []
    for entry in _read():
        if entry.folder == here and len(found) < SHOWN:
            with suppress(ConfigError):
                found.append(RunConfig.from_dict(entry.config))
    return found


def remember(config: RunConfig) -> None:
    """Put a script in front of those of the current folder; raises OSError."""
    here = os.getcwd()
    words = config.script.words
    others = [entry for entry in _read() if not _is_same(entry, here, words)]
    entries = [_Entry(here, tomllib.loads(config.to_toml(whole=False))), *others][:MOST]
    path().parent.mkdir(parents=True, exist_ok=True)
    text = tomli_w.dumps(msgspec.to_builtins(_File(entries)))
    write_atomically(path(), text.encode(), durable=False)


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


def _read() -> list[_Entry]:
    with suppress(OSError, ValueError, RecursionError, msgspec.ValidationError):
        return msgspec.convert(tomllib.loads(path().read_text("utf-8")), _File).scripts
    return []
