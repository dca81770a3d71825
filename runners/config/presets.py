"""Named configurations: the built-in ones, the user's own, and files by path.

A preset of the user's own hides a built-in one of the same name, and its origin says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import structs

from distrain.models.errors import nearest
from distrain.runners.config.command_line import is_program
from distrain.runners.config.schema import RunConfig, differences
from distrain.runners.errors import ConfigError
from distrain.runners.system.files import (
    open_replacement,
    read_named,
    require_regular,
    write_atomically,
)
from distrain.runners.system.home_folders import config_folder

# Next to this package, in a checkout as in an installed wheel.
BUILT_IN = Path(__file__).resolve().parents[2] / "presets"
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
MOST_CHARACTERS = 100  # of a name


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A preset in the list; if its file is invalid, `config` is None and `problem` says why.

    A file that is in neither folder of presets is listed by its absolute path, a script without a
    file by its command line.
    """

    name: str
    origin: Literal["built-in", "yours", "file", "script"]
    path: str
    hides_built_in: bool = False
    config: RunConfig | None = None
    problem: str = ""


def user_folder() -> Path:
    """Return the folder of the user's own presets, which need not exist.

    Raises ConfigError where `config_folder` does.
    """
    return config_folder() / "presets"


def names() -> list[str]:
    """Return the names of all presets, built-in and the user's own, sorted."""
    return sorted(_files(BUILT_IN) | _files(user_folder()))


def listing() -> list[Preset]:
    """Return all presets by name, invalid files included."""
    own, built_in = _files(user_folder()), _files(BUILT_IN)
    return [_list_one(name, own, built_in) for name in sorted(own | built_in)]


def list_file(path: Path) -> Preset:
    """Return the preset of a file anywhere, by its absolute path; an invalid file is included."""
    path = Path(os.path.abspath(os.path.expanduser(path)))
    try:
        if path.exists():
            require_regular(path.stat())
        return Preset(name=str(path), origin="file", path=str(path), config=_read(path))
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
    except ConfigError as error:
        problem = str(error)
    return Preset(name=str(path), origin="file", path=str(path), problem=problem)


def find(name_or_path: str | os.PathLike[str]) -> tuple[RunConfig, str]:
    """Return a preset and its origin: "built-in", "yours" or the path of the file.

    A text that contains a slash or ends in `.toml` is a path. Raises ConfigError for an unknown
    name (with the nearest ones) and for an invalid file (with its path and every key).
    """
    path, origin = locate(name_or_path)
    return _read(path), origin


def locate(name_or_path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Return the file of a preset and its origin as in `find`, without reading it."""
    text = os.fspath(name_or_path)
    if text.endswith(".toml") or os.sep in text:
        return Path(os.path.expanduser(text)), text
    own, built_in = _files(user_folder()), _files(BUILT_IN)
    if text in own:
        return own[text], "yours, hiding the built-in one" if text in built_in else "yours"
    if text in built_in:
        return built_in[text], "built-in"
    if is_program(text):
        raise ConfigError(f"{text} is a script, but only a preset can be given here")
    raise ConfigError(f"there is no preset {text!r}{nearest(text, own | built_in)}")


def load_preset(
    name_or_path: str | os.PathLike[str], overrides: dict[str, Any] | None = None
) -> RunConfig:
    """Return the config of a preset with dotted keys changed, e.g. {"train.lr": 0.05}.

    Raises ConfigError as `find` does, and for every wrong override with its key.
    """
    config, _ = find(name_or_path)
    return config.with_changes(overrides) if overrides else config


def save_preset(name: str, config: RunConfig, force: bool = False) -> Path:
    """Write a preset of the user's own and return its path; `force` replaces an existing one.

    Raises ConfigError if the name cannot be used or exists, or if the file cannot be written.
    """
    if not re.fullmatch(NAME, name) or len(name) > MOST_CHARACTERS or name.endswith(".toml"):
        raise ConfigError(
            f"{name!r} cannot name a preset: use letters, digits, '-', '_' and '.', without .toml"
        )
    path = user_folder() / f"{name}.toml"
    if config.code_dir == str(path.parent.absolute()):
        config = structs.replace(config, code_dir=None)  # its default there
    elif config.is_script and config.code_dir is None:
        config = structs.replace(config, code_dir=os.getcwd())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if force:
            with open_replacement(path) as file:  # a link stays one, and a private file private
                file.write(config.to_toml(whole=False))
                file.flush()
                os.fsync(file.fileno())
        else:
            _create(path, config.to_toml(whole=False).encode())
    except OSError as error:
        if isinstance(error, FileExistsError) and error.filename == str(path):
            fix = "--force replaces it and removes the comments in it"
            text = f"you already have a preset {name} ({path}); {fix}"
            raise ConfigError(text) from None
        raise ConfigError(f"the preset cannot be written to {path}: {error.strerror}") from None
    return path


def _create(path: Path, data: bytes) -> None:
    """Write a new file. Raises OSError: FileExistsError for all but one of several writers."""
    path.touch(exist_ok=False)
    try:
        write_atomically(path, data)
    except BaseException:
        path.unlink()
        raise


def describe(config: RunConfig, base_name: str, base: RunConfig) -> RunConfig:
    """Return a config with a description that lists what it changes of `base`.

    A config without changes, or with a description of its own, is returned unchanged.
    """
    changed = differences(base, config).items()
    if not changed or config.description != base.description:
        return config
    changes = [f"{key} {'unset' if value is None else value}" for key, (_, value) in changed]
    return config.with_changes({"description": f"{base_name} with {', '.join(changes)}"})


def _files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in folder.glob("*.toml") if re.fullmatch(NAME, path.stem)}


def _list_one(name: str, own: Mapping[str, Path], built_in: Mapping[str, Path]) -> Preset:
    path = own.get(name) or built_in[name]
    config = None
    problem = ""
    try:
        config = _read(path)
    except ConfigError as error:
        problem = str(error)
    return Preset(
        name=name,
        origin="yours" if name in own else "built-in",
        path=str(path),
        hides_built_in=name in own and name in built_in,
        config=config,
        problem=problem,
    )


def _read(path: Path) -> RunConfig:
    try:
        if path.parent == user_folder():  # lists read all of them, a pipe forever
            require_regular(path.stat())
        text = read_named(path)
    except FileNotFoundError:
        raise ConfigError(f"there is no preset file {path}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a preset: it is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        config = RunConfig.from_toml(text)
    except ConfigError as error:
        raise ConfigError([("", f"{path} is not a valid preset:"), *error.problems]) from None
    if path.parent.resolve() == BUILT_IN and config.code_dir is None:
        return config
    code_dir = path.parent.absolute() / os.path.expanduser(config.code_dir or "")
    return structs.replace(config, code_dir=os.path.normpath(code_dir))
