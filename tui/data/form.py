"""The form of a RunConfig without its widgets: fields, a draft of changes, the command for it.

Types, ranges and descriptions of the fields are those of the config's annotations.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tomli_w

from models.catalog import BUILTINS, torchvision_networks
from runners.config import RunConfig, parse_assignment, parse_devices
from runners.errors import ConfigError
from runners.validation import Devices, Section, choices_of, wanted

Kind = Literal["bool", "choice", "number", "text", "devices", "list", "table"]

COMMON = frozenset(
    (
        "strategy",
        "launcher",
        "precision",
        "devices",
        "model.name",
        "data.name",
        "data.root",
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
# In common use where Slurm starts the ranks, in place of the devices, which are its to give.
OF_SLURM = frozenset(
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
OFFERED: Mapping[str, Literal["task", "model", "data"]] = {
    "task.name": "task",
    "model.name": "model",
    "data.name": "data",
}


class Field(NamedTuple):
    """One key of a config; `wanted` says in words what it takes. An `open` one may be something
    else than one of its choices.
    """

    key: str
    kind: Kind
    about: str
    wanted: str
    choices: tuple[str, ...] = ()
    optional: bool = False
    open: bool = False

    @property
    def group(self) -> str:
        """The table it stands in; "run" for those that stand in none."""
        return self.key.rpartition(".")[0] or "run"

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]


@cache
def fields() -> tuple[Field, ...]:
    """Every field of a config, in its order."""
    return tuple(_fields(RunConfig, ""))


def _fields(kind: type[Section], prefix: str) -> Iterator[Field]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if isinstance(hint, type) and issubclass(hint, Section):
            yield from _fields(hint, f"{prefix}{name}.")
        else:
            yield _field(prefix + name, hint)


def _field(key: str, hint: Any) -> Field:
    inner, about, optional = hint, "", False
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


def _kind(inner: Any) -> Kind:
    if inner == Devices:
        return "devices"
    kinds: dict[Any, Kind] = {bool: "bool", int: "number", float: "number", str: "text"}
    kinds[list[str]] = "list"
    return kinds.get(inner, "table")


EMPTY: Mapping[str, Any] = {"table": {}, "list": []}  # what is written in TOML

# --- values ------------------------------------------------------------------------------------


def typed(field: Field, text: str) -> Any:
    """What a person has typed as plain data; what cannot be read stays text."""
    text = text.strip()
    if not text and field.kind in EMPTY:
        return EMPTY[field.kind]
    if not text and field.kind != "text":
        return None if field.optional else text
    if field.kind == "number":
        return _number(text)
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


def as_typed(value: Any, field: Field | None = None) -> str:
    """A value as a person would type it, in a field; nothing where it is unset."""
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, list) and (field is None or field.kind == "devices"):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else in_toml(value)


def shown(value: Any, field: Field | None = None) -> str:
    """A value for reading."""
    return as_typed(value, field) or ("unset" if value is None else "none")


def in_toml(value: Any) -> str:
    """A value in one line of TOML."""
    if isinstance(value, dict):
        items = [f"{_key(key)} = {in_toml(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    return tomli_w.dumps({"v": value}).partition("= ")[2].rstrip("\n")


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else in_toml(key)


def neighbour(field: Field, value: Any, direction: int) -> str | None:
    """The next of a field's choices, round and round; None where unset is one of them."""
    choices = [*field.choices, *([None] if field.optional else [])]
    if value not in choices:
        choices.append(value)
    return choices[(choices.index(value) + direction) % len(choices)]


def offers(key: str) -> list[tuple[str, str]]:
    """Names that a field can take, each with what it stands for; others may be typed."""
    if key not in OFFERED:
        return []
    known = [(name, item.about) for name, item in BUILTINS[OFFERED[key]].items()]
    if key == "model.name":
        known += [(name, "of torchvision") for name in sorted(torchvision_networks())]
    return known


# --- a draft -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draft:
    """A preset and what a person has made of it. `config` holds in itself; whether it can run
    here is for `runners.runs.check` to say.
    """

    name: str
    base: RunConfig
    config: RunConfig

    @classmethod
    def of(cls, name: str, config: RunConfig, assignments: Iterable[str] = ()) -> Draft:
        """A preset with what was changed of it, as far as that still holds."""
        draft = cls(name, config, config)
        for assignment in assignments:
            with suppress(ConfigError):
                draft = draft.with_value(*parse_assignment(assignment))
        return draft

    def get(self, key: str) -> Any:
        return _at(self.config, key)

    def preset_value(self, key: str) -> Any:
        return _at(self.base, key)

    def changed(self, key: str) -> bool:
        return bool(self.get(key) != self.preset_value(key))

    @property
    def changes(self) -> list[Field]:
        """Fields that differ from the preset's."""
        return [field for field in fields() if self.changed(field.key)]

    def with_value(self, key: str, value: Any) -> Draft:
        """With one field set, None unsets it; raises ConfigError."""
        return replace(self, config=self.config.with_changes({key: value}))

    def reset(self, key: str) -> Draft:
        """With the preset's own value."""
        return self.with_value(key, self.preset_value(key))

    @property
    def assignments(self) -> list[str]:
        """What differs from the preset, as `--set` takes it."""
        return [self._assignment(field) for field in self.changes]

    def _assignment(self, field: Field) -> str:
        return f"{field.key}={_assigned(field.key, self.get(field.key))}"

    def command(self, runs_dir: Path | None = None) -> list[str]:
        """The shortest command line that does the same run, as its words.

        `runs_dir` is named where it is not the usual one.
        """
        words = ["distrain", "run", self.name]
        for field in self.changes:
            if field.kind == "devices":
                words += ["--devices", as_typed(self.get(field.key))]
            else:
                words += ["--set", self._assignment(field)]
        return words + ([] if runs_dir is None else ["--runs-dir", str(runs_dir)])


def complaint(draft: Draft, field: Field, text: str) -> str:
    """Why what was typed cannot be the field's value; nothing where it can."""
    try:
        draft.with_value(field.key, typed(field, text))
    except ConfigError as error:
        return "; ".join(problem for _, problem in error.problems)
    return ""


def _at(config: RunConfig, key: str) -> Any:
    found: Any = config
    for name in key.split("."):
        found = getattr(found, name)
    return found


def _assigned(key: str, value: Any) -> str:
    """VALUE of `--set KEY=VALUE`: bare where that is read as the same, else as TOML."""
    if value is None:
        return ""
    if isinstance(value, str) and value and parse_assignment(f"{key}={value}")[1] == value:
        return value
    return in_toml(value)


# --- what of it is seen ------------------------------------------------------------------------


def visible(
    draft: Draft, *, everything: bool, words: str = "", troubled: Container[str] = ()
) -> list[Field]:
    """Fields to show: those in common use or all; with `words`, those that hold each of them.

    What was changed and what is in trouble is never out of sight.
    """
    if wanted := words.lower().split():
        return [field for field in fields() if _holds(field, wanted)]
    slurm = draft.config.launcher == "slurm"
    common = COMMON - {"devices"} | OF_SLURM if slurm else COMMON
    found = [
        field
        for field in fields()
        if everything or field.key in common or field.key in troubled or draft.changed(field.key)
    ]
    # What is asked of Slurm stands where the devices of this machine would.
    return sorted(found, key=lambda field: not slurm or field.group not in ("run", "slurm"))


def _holds(field: Field, wanted: list[str]) -> bool:
    text = f"{field.key} {field.about}".lower()
    return all(word in text for word in wanted)
