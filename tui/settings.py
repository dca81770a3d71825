"""Settings of the user, and choices that the app remembers: settings.toml in the config folder."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec
import tomli_w

from distrain.runners.config.presets import user_folder
from distrain.runners.system.files import write_atomically


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`theme` is the name of a Textual theme, `plots_in` are the characters of plots, `bell` rings
    when a run ends, `keys` are keys by the id of their action. The other fields hold what was
    chosen last.
    """

    theme: str = "textual-dark"
    plots_in: Literal["auto", "braille", "blocks", "ascii"] = "auto"
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
    """Return the settings, and what is wrong with the file (defaults apply) or an empty string."""
    try:
        return msgspec.convert(tomllib.loads(path().read_text("utf-8")), Settings), ""
    except FileNotFoundError:
        return Settings(), ""
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        return Settings(), f"{path()} is ignored: {error}"


def save(settings: Settings) -> None:
    """Write the settings that differ from the defaults. Raise OSError."""
    text = tomli_w.dumps(_changed(settings))
    path().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path(), text.encode(), durable=False)  # a key press must not wait for the disk


def _changed(settings: Settings) -> dict[str, Any]:
    values = msgspec.to_builtins(settings)
    defaults = msgspec.to_builtins(Settings())
    return {name: value for name, value in values.items() if value != defaults[name]}
