"""Code that a config names, and whether the user trusts it.

A preset that the user names and a config that the user's program builds are trusted: `launch`
remembers what they execute. A record may come from somebody else. What is executed when it is run
again must have been launched before by this user, or be trusted explicitly.

Remembered is a hash of what the config says: names, arguments, shell lines and the folders in which
they are looked up. The contents of the files are not part of it, because a user edits them between
two runs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from distrain.models.importing import user_folders
from distrain.runners import formatting
from distrain.runners.config.command_line import format_toml
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.toml import flatten
from distrain.runners.errors import ConfigError, UntrustedError
from distrain.runners.system.home_folders import state_folder
from distrain.runners.system.private_folder import is_private

FACTORIES = ("task", "model", "data")
MOST_LINES = 20  # in a question
MOST_CHARACTERS = 400  # of a line
# Also where the store cannot be written: what this process has launched or been allowed to.
_trusted_here: set[str] = set()


def remember(config: RunConfig, cwd: str | None = None, run_id: str = "") -> None:
    """Trust what a config executes from now on.

    With `run_id`, trust that run of it instead: a new supervisor may control its job. `cwd` is the
    folder that it is launched from, by default the current one. Where the store cannot be written,
    this process alone remembers it.
    """
    digest = _digest(config, cwd, run_id)
    _trusted_here.add(digest)
    with suppress(OSError, ConfigError):
        folder = store()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / digest).touch(mode=0o600)  # atomic, and safe for concurrent launches


def is_remembered(config: RunConfig, cwd: str | None = None, run_id: str = "") -> bool:
    """Return whether this user has launched or trusted exactly this, as `remember` does."""
    digest = _digest(config, cwd, run_id)
    if digest in _trusted_here:
        return True
    with suppress(OSError, ConfigError):
        return is_private(store()) and (store() / digest).is_file()
    return False


def untrusted_code(config: RunConfig, cwd: str | None = None) -> list[str]:
    """Return what a config of unknown origin executes, as printable lines to show to the user.

    It is empty if the config names nothing but what distrain contains, or if the user trusts it.
    """
    code = named_code(config)
    folders = searched_folders(config, cwd)
    # A folder that does not exist yet may, once the run or a preset made of it starts.
    foreign = [folder for folder in folders if not _is_own(folder)]
    if not (code or foreign) or is_remembered(config, cwd):
        return []
    lines = [_shorten(f"{key} = {format_toml(value)}") for key, value in flatten(code).items()]
    more = len(lines) - MOST_LINES
    if more > 0:
        lines[MOST_LINES:] = [f"and {formatting.plural(more, 'more key')} in its config.toml"]
    return [*lines, _shorten(f"with modules from {', '.join(folders)}")]


def require_trust(name: str, lines: Sequence[str]) -> None:
    """Raise UntrustedError if there are lines of `untrusted_code`; `name` is what has them."""
    if lines:
        raise UntrustedError("\n".join([describe(name, lines), "Add --trust to allow this."]))


def describe(name: str, lines: Sequence[str]) -> str:
    """Return a paragraph on what would be executed: `name` is a run or bench with its folder."""
    text = f"{formatting.printable(name)} executes code that you have not launched or trusted yet:"
    return "\n".join([text, *(f"  {line}" for line in lines)])


def named_code(config: RunConfig) -> dict[str, Any]:
    """Return the keys of a config that make a run execute other code than distrain's.

    A run also unpickles what its peers send, so the addresses of these are among them.
    """
    data = config.to_dict()
    code: dict[str, Any] = {}
    if config.is_script:
        code["script"] = _keys(data["script"], "path", "module", "args", "cwd", "env")
    else:
        if ":" in config.strategy:
            code["strategy"] = config.strategy
        if ":" in config.train.optimizer:
            code["train"] = _keys(data["train"], "optimizer", "optimizer_args")
        code |= {kind: _factory(data[kind]) for kind in FACTORIES if ":" in data[kind]["name"]}
    # Whatever the launcher is: --set may choose another one.
    code["slurm"] = _keys(data["slurm"], "prologue", "extra")
    code["dist"] = _keys(data["dist"], "init_method", "rendezvous")
    return {key: value for key, value in code.items() if value}


def searched_folders(config: RunConfig, cwd: str | None = None) -> list[str]:
    """Return the absolute folders in which ranks look for modules and programs first."""
    return [os.path.realpath(folder) for folder in user_folders(config.code_dir, cwd or ".")]


def store() -> Path:
    """Return the folder with one empty file for each hash, named by it. Raises ConfigError."""
    return state_folder() / "trusted"


def _digest(config: RunConfig, cwd: str | None, run_id: str) -> str:
    parts = [named_code(config), searched_folders(config, cwd), *filter(None, [run_id])]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def _factory(section: dict[str, Any]) -> dict[str, Any]:
    return _keys(section, "name", "args")


def _keys(section: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: section[key] for key in keys if section.get(key)}


def _is_own(folder: str) -> bool:
    """Return whether a run of a built-in preset may import from a folder in any case."""
    from distrain.runners.config.presets import user_folder

    return folder in (os.getcwd(), os.path.realpath(user_folder()))


def _shorten(line: str) -> str:
    line = formatting.printable(line)
    hidden = len(line) - MOST_CHARACTERS
    if hidden <= 0:
        return line
    return f"{line[:MOST_CHARACTERS]} … (and {formatting.plural(hidden, 'more character')})"
