"""Named configurations: the built-in ones, the user's own, and files by path.

A preset of the user's own goes before a built-in one of the same name, and its origin says so.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import platformdirs

from runners.config import RunConfig, differences
from runners.errors import ConfigError, nearest
from runners.state import write_atomically

# Beside this package in a checkout and in an installed wheel alike. Asking importlib for the
# package `presets` would find a folder of that name in the current directory first.
BUILT_IN = Path(__file__).resolve().parents[1] / "presets"
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list: `config` is None where the file is invalid and `problem` says why."""

    name: str
    origin: Literal["built-in", "yours"]
    path: str
    hides_built_in: bool = False
    config: RunConfig | None = None
    problem: str = ""


def user_folder() -> Path:
    """Where the user's own presets lie; it need not exist. `$DISTRAIN_CONFIG_DIR` moves it.

    Raises ConfigError where that names the home of a user who is not there.
    """
    base = os.environ.get("DISTRAIN_CONFIG_DIR") or platformdirs.user_config_dir("distrain")
    try:
        return Path(base).expanduser() / "presets"
    except RuntimeError:
        raise ConfigError(f"there is no such folder as {base} ($DISTRAIN_CONFIG_DIR)") from None


def names() -> list[str]:
    """Names of all presets, built-in and the user's own, sorted."""
    return sorted(_files(BUILT_IN) | _files(user_folder()))


def listing() -> list[Preset]:
    """All presets by name, invalid files included."""
    return [_listed(name) for name in names()]


def find(name_or_path: str | os.PathLike[str]) -> tuple[RunConfig, str]:
    """A preset and where it comes from: "built-in", "yours" or the path of the file.

    What contains a slash or ends in `.toml` is a path. Raises ConfigError for an unknown name
    (with the nearest ones) and for an invalid file (with its path and every key).
    """
    path, origin = locate(name_or_path)
    return _read(path), origin


def locate(name_or_path: str | os.PathLike[str]) -> tuple[Path, str]:
    """The file of a preset and its origin as in `find`, without reading it."""
    text = os.fspath(name_or_path)
    if text.endswith(".toml") or os.sep in text:
        return Path(text).expanduser(), text
    own, built_in = _files(user_folder()), _files(BUILT_IN)
    if text in own:
        return own[text], "yours, hiding the built-in one" if text in built_in else "yours"
    if text in built_in:
        return built_in[text], "built-in"
    raise ConfigError(f"there is no preset {text!r}{nearest(text, own | built_in)}")


def load_preset(
    name_or_path: str | os.PathLike[str], overrides: dict[str, Any] | None = None
) -> RunConfig:
    """The config of a preset with dotted keys changed, e.g. {"train.lr": 0.05}.

    Raises ConfigError as `find` does, and for every wrong override with its key.
    """
    config, _ = find(name_or_path)
    return config.with_changes(overrides) if overrides else config


def save_preset(name: str, config: RunConfig, force: bool = False) -> Path:
    """Write a preset of the user's own and return its path.

    Raises ConfigError for an unfit name, and for one that is taken unless `force` is set.
    """
    if not re.fullmatch(NAME, name) or len(name) > 100 or name.endswith(".toml"):
        raise ConfigError(
            f"{name!r} cannot name a preset: use letters, digits, '-', '_' and '.', without .toml"
        )
    path = user_folder() / f"{name}.toml"
    if path.exists() and not force:
        raise ConfigError(f"you already have a preset {name} ({path}); --force replaces it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, config.to_toml(whole=False).encode())
    except OSError as error:
        raise ConfigError(f"the preset cannot be written to {path}: {error.strerror}") from None
    return path


def described(config: RunConfig, of: str, base: RunConfig) -> RunConfig:
    """A config that was made of another, with a description of its own where it has not got one
    yet: what it changes.
    """
    changed = differences(base, config).items()
    if not changed or config.description != base.description:
        return config
    told = [f"{key} {'unset' if value is None else value}" for key, (_, value) in changed]
    return config.with_changes({"description": f"{of} with {', '.join(told)}"})


def _files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in folder.glob("*.toml") if re.fullmatch(NAME, path.stem)}


def _listed(name: str) -> Preset:
    path, origin = locate(name)
    config, problem = None, ""
    try:
        config = _read(path)
    except ConfigError as error:
        problem = str(error)
    return Preset(
        name=name,
        origin="built-in" if origin == "built-in" else "yours",
        path=str(path),
        hides_built_in=origin.startswith("yours,"),
        config=config,
        problem=problem,
    )


def _read(path: Path) -> RunConfig:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no preset file {path}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a preset: it is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return RunConfig.from_toml(text)
    except ConfigError as error:
        raise ConfigError([("", f"{path} is not a valid preset:"), *error.problems]) from None
