"""What a person has set, and what the app remembers: settings.toml in the config folder."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec
import tomli_w

from runners.presets import user_folder
from runners.state import write_atomically


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`theme` is a name of Textual's, `bell` rings when a run ends, `keys` maps ids of the
    keymap to keys. The rest is what was chosen last.
    """

    theme: str = "textual-dark"
    bell: bool = False
    keys: dict[str, str] = {}
    preset: str = "ddp"
    axis: Literal["step", "epoch", "time"] = "step"
    log_y: bool = False
    smooth: int = 0
    plots: list[str] = []
    logs: bool = False
    sort: str = "age"
    descending: bool = True


def path() -> Path:
    return user_folder().parent / "settings.toml"


def load() -> tuple[Settings, str]:
    """The settings, and a sentence where the file could not be used."""
    try:
        return msgspec.convert(tomllib.loads(path().read_text("utf-8")), Settings), ""
    except FileNotFoundError:
        return Settings(), ""
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        return Settings(), f"{path()} is not used: {error}"


def save(settings: Settings) -> None:
    """Write what differs from the defaults; raises OSError."""
    text = tomli_w.dumps(_changed(settings))
    path().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path(), text.encode(), durable=False)  # a key is not to wait for the disk


def _changed(settings: Settings) -> dict[str, Any]:
    plain, usual = msgspec.to_builtins(settings), msgspec.to_builtins(Settings())
    return {name: value for name, value in plain.items() if value != usual[name]}
