"""The fields of a RunConfig: their types, ranges and descriptions, and their values as text.

They come from the annotations of the config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from distrain.models.catalog import BUILTINS, torchvision_networks
from distrain.runners import formatting
from distrain.runners.config.command_line import format_toml
from distrain.runners.config.schema import RunConfig, parse_assignment, parse_devices
from distrain.runners.config.sweep import Axis
from distrain.runners.config.validation import Devices, Section, choices_of, wanted

FieldKind = Literal["bool", "choice", "number", "text", "devices", "list", "table"]
NAMED_KINDS: Mapping[str, Literal["task", "model", "data"]] = {
    "task.name": "task",
    "model.name": "model",
    "data.name": "data",
}
SWITCH = {"true": True, "false": False}
EMPTY: Mapping[str, Any] = {"table": {}, "list": []}  # values that are typed as TOML


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


def used_fields(config: RunConfig) -> list[Field]:
    """Return the fields that have a meaning in a config: a script has none of the training loop."""
    unused = {*config.unused_keys, *(("strategy",) if config.is_script else ())}
    return [field for field in fields() if field.key.partition(".")[0] not in unused]


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
    """Return the first suggestion that begins with a text, or else the text as it is.

    Each of several values is completed, to one that is not among the others.
    """
    known = suggestions(field)
    parts = [part.strip() for part in (text.split(",") if may_be_swept(field) else [text])]
    for n, typed in enumerate(parts):
        found = [name for name in known if typed and name.lower().startswith(typed.lower())]
        if typed not in found:
            parts[n] = next((name for name in found if name not in parts), typed)
    return ", ".join(parts) if known else text


def without_open_end(field: Field, text: str) -> str:
    """Return the text without a comma at its end, after which one more value may be typed."""
    return text.rstrip().removesuffix(",") if may_be_swept(field) else text
