"""Settings of the user, and choices that the app remembers: settings.toml in the config folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from distrain.models.errors import nearest
from distrain.runners.errors import DistrainError
from distrain.tui.user_file import DAMAGE, UserFile


class SettingsError(DistrainError):
    """The settings file holds something that the app does not know. The user has to fix it."""

    exit_code = 2

    def __init__(self, problems: Iterable[str]) -> None:
        super().__init__("\n".join(f"{path()}: {problem}" for problem in problems))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
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


FILE = UserFile("settings.toml", Settings)


def path() -> Path:
    return FILE.path


class Loaded(NamedTuple):
    """`problem` is what is wrong with the file, so that defaults apply, or an empty string;
    `unknown` is a sentence about each setting that this version does not know.
    """

    settings: Settings
    problem: str = ""
    unknown: Sequence[str] = ()


def load() -> Loaded:
    """Read the settings file."""
    try:
        table, found = FILE.read()
    except FileNotFoundError:
        return Loaded(Settings())
    except OSError as error:
        return Loaded(Settings(), f"cannot be read: {error.strerror}")
    except DAMAGE as error:
        return Loaded(Settings(), str(error))
    known = Settings.__struct_fields__
    unknown = sorted(table.keys() - set(known))
    return Loaded(
        found, unknown=[f"there is no setting {name!r}{nearest(name, known)}" for name in unknown]
    )


def save(after: Settings, before: Settings | None = None) -> str:
    """Write what has changed since `before`, by default everything; keep what others have changed.

    Settings that have their defaults are not written, those of a newer version stay. Return what
    the user has to know, or an empty string. Raises OSError.
    """
    new = msgspec.to_builtins(after)
    defaults = msgspec.to_builtins(Settings())
    old = defaults if before is None else msgspec.to_builtins(before)

    def change(table: dict[str, Any], is_new: bool) -> None:
        for name, value in new.items():
            since = defaults[name] if is_new else old[name]
            if before is None or value != since:
                table[name] = _merged(table.get(name), since, value)
            if name in table and table[name] == defaults[name]:
                del table[name]

    return FILE.change(change)


def _merged(on_disk: Any, old: Any, new: Any) -> Any:
    """Return a new value; of a table, the one on the disk with the entries that have changed."""
    if not all(isinstance(value, dict) for value in (on_disk, old, new)):
        return new
    kept = {key: value for key, value in on_disk.items() if key in new or key not in old}
    return kept | {key: value for key, value in new.items() if old.get(key) != value}
