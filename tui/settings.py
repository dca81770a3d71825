"""Settings of the user, and choices that the app remembers: settings.toml in the config folder."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from distrain.models.errors import nearest
from distrain.runners.errors import DistrainError
from distrain.runners.system.files import write_atomically
from distrain.runners.system.home_folders import config_folder


class SettingsError(DistrainError):
    """The settings file holds something that the app does not know. The user has to fix it."""

    exit_code = 2

    def __init__(self, problems: Iterable[str]) -> None:
        super().__init__("\n".join(f"{path()}: {problem}" for problem in problems))


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`theme` is the name of a Textual theme, `plots_in` are the characters of plots, `bell` rings
    when a run ends, `keys` are keys by the id of their action, `filters` are filter expressions of
    the table of runs by name. The other fields hold what was chosen last; `logs` whether they are
    shown, by the kind of run (a single value is that of presets, as older versions wrote it), and
    no `columns` means that the app chooses them.
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
    logs: dict[str, bool] | bool = {}
    sort: str = "age"
    descending: bool = True
    group_by: str = ""
    columns: list[str] = []
    preview: bool = True
    filters: dict[str, str] = {}
    seen_until: dict[str, float] = {}  # Unix time, by runs folder: what happened before was seen
    tour_shown: bool = False

    def shows_logs(self, kind: str) -> bool:
        """Return whether the logs of this kind of run are shown: of scripts, unless hidden."""
        return self.logs_by_kind.get(kind, kind == "script")

    @property
    def logs_by_kind(self) -> dict[str, bool]:
        return {"preset": self.logs} if isinstance(self.logs, bool) else self.logs


def path() -> Path:
    return config_folder() / "settings.toml"


def load() -> tuple[Settings, str]:
    """Return the settings, and what is wrong with the file (defaults apply) or an empty string."""
    try:
        values = tomllib.loads(path().read_text("utf-8"))
        for name in values:
            if name not in Settings.__struct_fields__:
                hint = nearest(name, Settings.__struct_fields__)
                return Settings(), f"there is no setting {name!r}{hint}"
        return msgspec.convert(values, Settings), ""
    except FileNotFoundError:
        return Settings(), ""
    except OSError as error:
        return Settings(), f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        return Settings(), str(error)


def save(settings: Settings) -> None:
    """Write the settings that differ from the defaults. Raise OSError."""
    import tomli_w  # not needed to read them

    text = tomli_w.dumps(_changed(settings))
    path().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path(), text.encode(), durable=False)  # a key press must not wait for the disk


def _changed(settings: Settings) -> dict[str, Any]:
    values = msgspec.to_builtins(settings)
    defaults = msgspec.to_builtins(Settings())
    return {name: value for name, value in values.items() if value != defaults[name]}
