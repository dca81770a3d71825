"""The config of a run by dotted keys, in little memory: tables hold thousands of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from distrain.runners import formatting
from distrain.runners.config import toml
from distrain.runners.system.files import read_regular

Setting: TypeAlias = str | int | float | bool

_positions: dict[tuple[str, ...], dict[str, int]] = {}  # shared by configs with the same keys
_values: dict[tuple[type, Setting], Setting] = {}  # shared by all configs, which are mostly alike


class FlatConfig(Mapping[str, Setting]):
    """Settings by dotted key: numbers and truth values as they are, all others as printable text.

    `positions` are the places of the keys in `values_in_order`: one object for all configs that
    have the same keys.
    """

    __slots__ = ("positions", "values_in_order")

    def __init__(self, settings: Mapping[str, Any] = {}) -> None:
        keys = tuple(settings)
        self.positions = _positions.setdefault(keys, {key: at for at, key in enumerate(keys)})
        self.values_in_order = tuple(map(_shared, settings.values()))

    def __getitem__(self, key: str) -> Setting:
        return self.values_in_order[self.positions[key]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)


def read_flat_config(folder: Path) -> FlatConfig:
    """Return config.toml, without checking it, or an empty config where it cannot be read."""
    try:
        return FlatConfig(toml.flatten(toml.loads(read_regular(folder / "config.toml").decode())))
    except (OSError, ValueError, RecursionError):  # the run's own screen reports what is wrong
        return NO_CONFIG


def _shared(value: Any) -> Setting:
    setting = _setting(value)
    return _values.setdefault((type(setting), setting), setting)


def _setting(value: Any) -> Setting:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return ", ".join(str(_setting(each)) for each in value)
    return formatting.printable(_table(value) if isinstance(value, dict) else str(value))


def _table(value: dict[str, Any]) -> str:
    import json  # for the few configs with a list of tables

    return json.dumps(value, default=str)


NO_CONFIG = FlatConfig()
