"""The form of a RunConfig without widgets: fields, a draft with changes, the command line.

Types, ranges and descriptions of the fields come from the annotations of the config.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from distrain.models.catalog import BUILTINS, torchvision_networks
from distrain.runners import formatting
from distrain.runners.config.command_line import (
    format_assigned,
    format_devices,
    format_toml,
    option_words,
    program_words,
)
from distrain.runners.config.schema import RunConfig, parse_assignment, parse_devices
from distrain.runners.config.sweep import Axis, check_axis
from distrain.runners.config.validation import Devices, Section, choices_of, wanted
from distrain.runners.errors import ConfigError

FieldKind = Literal["bool", "choice", "number", "text", "devices", "list", "table"]

COMMON = frozenset(
    (
        "strategy",
        "launcher",
        "precision",
        "devices",
        "model.name",
        "data.name",
        "data.root",
        "script.args",
        "script.cwd",
        "script.env",
        "data.workers",
        "train.epochs",
        "train.batch_size",
        "train.accumulate",
        "train.optimizer",
        "train.lr",
        "train.scale_lr",
        "train.schedule",
        "train.warmup_epochs",
        "train.weight_decay",
        "train.seed",
        "train.threads",
        "eval.every_epochs",
        "checkpoint.every_epochs",
    )
)
# Common fields where Slurm starts the ranks. They replace the devices, which Slurm allocates.
COMMON_WITH_SLURM = frozenset(
    f"slurm.{name}"
    for name in (
        "partition",
        "account",
        "nodes",
        "gpus_per_node",
        "tasks_per_node",
        "cpus_per_task",
        "memory",
        "time",
        "requeue",
    )
)
NAMED_KINDS: Mapping[str, Literal["task", "model", "data"]] = {
    "task.name": "task",
    "model.name": "model",
    "data.name": "data",
}


class Field(NamedTuple):
    """One key of a config. `wanted` describes its values; an `open` field also takes values that
    are not among its choices.
    """

    key: str
    kind: FieldKind
    about: str
    wanted: str
    choices: tuple[str, ...] = ()
    optional: bool = False
    open: bool = False

    @property
    def group(self) -> str:
        """Return the name of its config table; "run" for top-level keys."""
        return self.key.rpartition(".")[0] or "run"

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]


@cache
def fields() -> tuple[Field, ...]:
    """Return all fields of a config in order."""
    return tuple(_fields(RunConfig, ""))


def _fields(kind: type[Section], prefix: str) -> Iterator[Field]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if isinstance(hint, type) and issubclass(hint, Section):
            yield from _fields(hint, f"{prefix}{name}.")
        else:
            yield _field(prefix + name, hint)


def _field(key: str, hint: Any) -> Field:
    inner = hint
    about = ""
    optional = False
    known: tuple[str, ...] = ()
    while True:
        if get_origin(inner) is Annotated:
            known = known or choices_of(inner)
            inner, *metas = get_args(inner)
            about = about or next((meta.description for meta in metas if meta.description), "")
        elif get_origin(inner) in (UnionType, Union) and type(None) in get_args(inner):
            optional = True
            inner = next(kind for kind in get_args(inner) if kind is not type(None))
        else:
            break
    choices = choices_of(inner) or known
    kind = "choice" if choices else _kind(inner)
    return Field(key, kind, about, wanted(hint), choices, optional, open=bool(known))


def _kind(inner: Any) -> FieldKind:
    if inner == Devices:
        return "devices"
    kinds: dict[Any, FieldKind] = {bool: "bool", int: "number", float: "number", str: "text"}
    kinds[list[str]] = "list"
    return kinds.get(inner, "table")


SWITCH = {"true": True, "false": False}
EMPTY: Mapping[str, Any] = {"table": {}, "list": []}  # values that are typed as TOML

# --- values ------------------------------------------------------------------------------------


def parse_typed(field: Field, text: str) -> Any:
    """Return typed text as plain data; text that cannot be parsed stays text.

    Several values, as in "0.1, 0.05", are an Axis where no single value has a comma.
    """
    text = text.strip()
    if "," in text and may_be_swept(field):
        texts = tuple(part.strip() for part in text.split(","))
        values = tuple(_one_value(field, each) if each else "" for each in texts)
        return Axis(field.key, values, texts)
    return _one_value(field, text)


def may_be_swept(field: Field) -> bool:
    """Return whether several values of a field can be told from one value."""
    return field.kind in ("number", "choice", "bool") or field.key in NAMED_KINDS


def _one_value(field: Field, text: str) -> Any:
    if not text and field.kind in EMPTY:
        return EMPTY[field.kind]
    if not text and field.kind != "text":
        return None if field.optional else text
    if field.kind == "number":
        return _number(text)
    if field.kind == "bool":
        return SWITCH.get(text.lower(), text)
    if field.kind == "devices":
        return parse_devices(text)
    if field.kind in EMPTY:
        return parse_assignment(f"{field.key}={text}")[1]
    return text or (None if field.optional else "")


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def editable_text(value: Any, field: Field | None = None) -> str:
    """Return a value as the user would type it; "" if it is unset."""
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, Axis):
        return ", ".join(value.texts)
    if isinstance(value, list) and (field is None or field.kind == "devices"):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else format_toml(value)


def display_text(value: Any, field: Field | None = None) -> str:
    """Return a value for display: printable, whoever made the preset."""
    return formatting.printable(editable_text(value, field)) or (
        "unset" if value is None else "none"
    )


def next_choice(field: Field, value: Any) -> str | None:
    """Return the next of a field's choices, cyclically; None stands for unset."""
    choices = [*field.choices, *([None] if field.optional else [])]
    if value not in choices:
        choices.append(value)
    return choices[(choices.index(value) + 1) % len(choices)]


def known_names(key: str) -> list[tuple[str, str]]:
    """Return known values of a field with their descriptions; others may be typed."""
    if key not in NAMED_KINDS:
        return []
    known = [(name, item.about) for name, item in BUILTINS[NAMED_KINDS[key]].items()]
    if key == "model.name":
        known += [(name, "of torchvision") for name in sorted(torchvision_networks())]
    return known


def suggestions(field: Field) -> list[str]:
    """Return the values that complete what is typed."""
    if field.kind == "bool":
        return [*SWITCH]
    return [*field.choices] or [name for name, _ in known_names(field.key)]


def complete(field: Field, text: str) -> str:
    """Return the first suggestion that begins with a text, or else the text as it is."""
    typed = text.strip().lower()
    found = [name for name in suggestions(field) if typed and name.lower().startswith(typed)]
    return text if text in found else next(iter(found), text)


# --- a draft -----------------------------------------------------------------------------------


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
        return [self._assignment(field) for field in self.changes]

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
        return ["distrain", "run", self.name, *self._options(self.changes), *options]

    def _options(self, changed: Iterable[Field]) -> list[str]:
        words = []
        for field in changed:
            if field.kind == "devices":
                words += ["--devices", format_devices(self.get(field.key))]
            else:
                is_axis = isinstance(self.get(field.key), Axis)
                words += ["--sweep" if is_axis else "--set", self._assignment(field)]
        return words


def without_open_end(field: Field, text: str) -> str:
    """Return the text without a comma at its end, after which one more value may be typed."""
    return text.rstrip().removesuffix(",") if may_be_swept(field) else text


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


# --- visible fields --------------------------------------------------------------------------


def used_fields(config: RunConfig) -> list[Field]:
    """Return the fields that have a meaning in a config: a script has none of the training loop."""
    unused = {*config.unused_keys, *(("strategy",) if config.is_script else ())}
    return [field for field in fields() if field.key.partition(".")[0] not in unused]


def visible_fields(
    draft: Draft, *, everything: bool, words: str = "", with_problems: Container[str] = ()
) -> list[Field]:
    """Return the common fields, or all; with `words`, the fields that contain each of them.

    Changed fields and those with problems are always included.
    """
    used = used_fields(draft.config)
    if wanted := words.lower().split():
        return [field for field in used if _contains(field, wanted)]
    slurm = draft.config.launcher == "slurm"
    common = COMMON - {"devices"} | COMMON_WITH_SLURM if slurm else COMMON
    found = [
        field
        for field in used
        if everything
        or field.key in common
        or field.key in with_problems
        or draft.changed(field.key)
    ]
    # The fields of Slurm come first, where the devices of this machine would be.
    return sorted(found, key=lambda field: not slurm or field.group not in ("run", "slurm"))


def _contains(field: Field, wanted: list[str]) -> bool:
    text = f"{field.key} {field.about}".lower()
    return all(word in text for word in wanted)
