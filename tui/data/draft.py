"""A preset or a script with unsaved changes, and the command line that launches it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distrain.runners.config.command_line import (
    format_assigned,
    format_devices,
    option_words,
    program_words,
)
from distrain.runners.config.schema import RunConfig, parse_assignment
from distrain.runners.config.sweep import Axis, check_axis
from distrain.runners.errors import ConfigError
from distrain.tui.data.config_fields import Field, fields, may_be_swept, parse_typed


@dataclass(frozen=True)
class Draft:
    """A preset, or a script without one, with unsaved changes.

    `config` is valid; `distrain.runners.runs.check` decides whether it can run here. It has the
    first value of each of the `axes`, which are the keys with several values.
    """

    name: str
    base: RunConfig
    config: RunConfig
    is_preset: bool = True
    axes: tuple[Axis, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        config: RunConfig,
        assignments: Iterable[str] = (),
        *,
        is_preset: bool = True,
    ) -> Draft:
        """Return a preset with changes; those that are not valid any more are left out."""
        draft = cls(name, config, config, is_preset)
        known = {field.key: field for field in fields()}
        for assignment in assignments:
            with suppress(ConfigError, KeyError):
                key, value = parse_assignment(assignment)
                if isinstance(value, str) and "," in value and may_be_swept(known[key]):
                    value = parse_typed(known[key], value)
                draft = draft.with_value(key, value)
        return draft

    @property
    def label(self) -> str:
        """Return the name to show: that of the file for a preset that is listed by its path."""
        return Path(self.name).name if self.is_preset else self.name

    @property
    def stem(self) -> str:
        """Return the name for a run: that of the file of a preset or script, without its ending."""
        if self.is_preset:
            return self.label.removesuffix(".toml")
        return Path(self.config.script.name).stem

    def without_changes(self) -> Draft:
        return replace(self, config=self.base, axes=())

    def get(self, key: str) -> Any:
        """Return the value of a key: an Axis if it has several."""
        return next((axis for axis in self.axes if axis.key == key), _at(self.config, key))

    def preset_value(self, key: str) -> Any:
        return _at(self.base, key)

    def changed(self, key: str) -> bool:
        return bool(self.get(key) != self.preset_value(key))

    @property
    def changes(self) -> list[Field]:
        """Return the fields that differ from the preset."""
        return [field for field in fields() if self.changed(field.key)]

    def with_value(self, key: str, value: Any) -> Draft:
        """Return the draft with one field set, or unset by None; raises ConfigError.

        An Axis sets several values.
        """
        axes = tuple(axis for axis in self.axes if axis.key != key)
        if isinstance(value, Axis):
            check_axis(value)
            for each in reversed(value.values):
                config = self.config.with_changes({key: each})
            return replace(self, config=config, axes=(*axes, value))
        return replace(self, config=self.config.with_changes({key: value}), axes=axes)

    def reset(self, key: str) -> Draft:
        """Return the draft with the preset's value of a field."""
        return self.with_value(key, self.preset_value(key))

    @property
    def assignments(self) -> list[str]:
        """Return the changes as assignments for `--set`, or `--sweep` for several values."""
        return [self._assignment(field) for field in self._assigned]

    @property
    def _assigned(self) -> list[Field]:
        """Return the fields to assign, in this order: those that differ from the preset.

        The launcher of a script follows from its devices where it is not assigned after them.
        """
        if not (self.config.is_script and self.changed("devices")):
            return self.changes
        of_devices = self.base.with_changes({"devices": self.config.devices})
        others = [field for field in self.changes if field.key != "launcher"]
        if not self.changed("launcher") and of_devices.launcher == self.config.launcher:
            return others
        return [*others, *(field for field in fields() if field.key == "launcher")]

    def _assignment(self, field: Field) -> str:
        value = self.get(field.key)
        if isinstance(value, Axis):
            return value.assignment
        return f"{field.key}={format_assigned(field.key, value)}"

    def command(self, runs_dir: Path | None = None) -> list[str]:
        """Return the words of the shortest command line that launches the same run.

        Pass `runs_dir` if it is not the default one.
        """
        options = [] if runs_dir is None else ["--runs-dir", str(runs_dir)]
        if not self.is_preset:
            first = {axis.key: self.preset_value(axis.key) for axis in self.axes}
            words = option_words(self.config.with_changes(first))
            words += [word for axis in self.axes for word in ("--sweep", axis.assignment)]
            return ["distrain", "run", *words, *options, *program_words(self.config)]
        return ["distrain", "run", self.name, *self._options(self._assigned), *options]

    def _options(self, changed: Iterable[Field]) -> list[str]:
        words = []
        for field in changed:
            if field.kind == "devices":
                words += ["--devices", format_devices(self.get(field.key))]
            else:
                is_axis = isinstance(self.get(field.key), Axis)
                words += ["--sweep" if is_axis else "--set", self._assignment(field)]
        return words


def find_problem(draft: Draft, field: Field, text: str) -> str:
    """Return why typed text is not a valid value of the field; "" if it is."""
    try:
        draft.with_value(field.key, parse_typed(field, text))
    except ConfigError as error:
        return "; ".join(problem for _, problem in error.problems)
    return ""


def _at(config: RunConfig, key: str) -> Any:
    found: Any = config
    for name in key.split("."):
        found = getattr(found, name)
    return found
