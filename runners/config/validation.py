"""Conversion of plain data into the sections of a config, with all problems at once."""

from __future__ import annotations

import math
from datetime import date, time
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from distrain.models.errors import nearest
from distrain.runners.errors import UNKNOWN_KEY

Devices = str | list[int | str]
# Keys of a Meta's `extra`: the known texts, what else is accepted, and a description of both.
CHOICES = "choices"
OR = "or"
FORM = "form"

DEEPEST = 16  # levels of a table of any values
_STORABLE = (str, int, float, date, time, dict, list, tuple, set, type(None))
LARGEST_INT = 2**63 - 1
LONGEST_SHOWN = 80  # characters of a wrong value in a message


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a preset."""


def build(
    kind: type[Section], data: object, prefix: str, problems: list[tuple[str, str]]
) -> Section | None:
    """Return a section, or None if there are problems: all of them are added to `problems`.

    Fields are converted one by one, because `msgspec.convert` stops at the first error.
    """
    if not isinstance(data, dict):
        problems.append((prefix.rstrip("."), f"must be a table, not {shown(data)}"))
        return None
    hints = _hints(kind)
    values: dict[str, Any] = {}
    for key, value in data.items():
        if (hint := hints.get(key)) is None:
            problems.append((prefix + key, f"{UNKNOWN_KEY}{_suggest(kind, key)}"))
        elif isinstance(hint, type) and issubclass(hint, Section):
            values[key] = build(hint, value, f"{prefix}{key}.", problems)
        else:
            try:
                values[key] = msgspec.convert(value, hint)
            except (msgspec.ValidationError, RecursionError):
                problems.append((prefix + key, _problem(key, value, hint)))
                continue
            if _is_free_table(hint) and (text := _table_problem(value)):
                problems.append((prefix + key, text))
            # TOML has infinities, and a bound on one side lets them through.
            if isinstance(values[key], float) and not math.isfinite(values[key]):
                problems.append((prefix + key, _problem(key, value, hint)))
    problems += [
        (prefix + name, f"is missing; it must be {wanted(hints[name])}")
        for name in _required(kind)
        if name not in data
    ]
    return kind(**values) if not problems else None


def describe_unknown(kind: type[Section], key: str) -> str:
    """Return the problem with a dotted key that a section does not have; empty if it has it."""
    name, _, rest = key.partition(".")
    hint = _hints(kind).get(name)
    if hint is None:
        return f"{UNKNOWN_KEY}{_suggest(kind, name)}"
    is_section = isinstance(hint, type) and issubclass(hint, Section)
    return describe_unknown(hint, rest) if rest and is_section else ""


def _suggest(kind: type[Section], key: str) -> str:
    paths = paths_of(kind, key)
    return f"; did you mean {' or '.join(paths)}?" if paths else nearest(key, _hints(kind))


def paths_of(kind: type[Section], key: str) -> list[str]:
    """Return the paths of the fields of this name in the sections of a section: "train.lr"."""
    return [
        f"{name}.{key}"
        for name, hint in _hints(kind).items()
        if isinstance(hint, type) and issubclass(hint, Section) and key in _hints(hint)
    ]


@cache
def _hints(kind: type[Section]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _required(kind: type[Section]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind) if field.required]


def _problem(key: str, value: Any, hint: Any) -> str:
    if isinstance(value, str) and (choices := choices_of(hint)):
        return f"unknown {key} {shown(value)}{nearest(value, choices)}"
    return f"must be {wanted(hint, value)}, not {shown(value)}"


def shown(value: object) -> str:
    """Return a value as a message quotes it: its beginning, if it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # a number of thousands of digits
        return "a value that is too large to show"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _is_free_table(hint: Any) -> bool:
    """Return whether a field is a table of any values, as the arguments of a factory."""
    inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return bool(inner == dict[str, Any])


def _table_problem(value: Any, depth: int = 0) -> str:
    """Return why a value of a free table cannot be stored; empty if it can."""
    if depth > DEEPEST:
        return f"is nested more than {DEEPEST} levels deep"
    if isinstance(value, int) and not -LARGEST_INT <= value <= LARGEST_INT:
        return f"contains a number of more than 64 bits: {shown(value)}"
    if not isinstance(value, _STORABLE):
        return f"contains a value that TOML cannot store: {shown(value)}"
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((text for part in parts if (text := _table_problem(part, depth + 1))), "")


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return the texts that a field accepts; of one that accepts others too, the known ones."""
    inner, *metas = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(inner) is Literal:
        return get_args(inner)
    return next((meta.extra[CHOICES] for meta in metas if CHOICES in (meta.extra or {})), ())


def _others(hint: Any) -> str:
    """Return what a field accepts besides its choices, in words."""
    metas = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((f" or {meta.extra[OR]}" for meta in metas if OR in (meta.extra or {})), "")


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_FAR_LIMIT = 1_000_000
_SIGNS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


def wanted(hint: Any, value: Any = None) -> str:
    """Return the type of a field with its range, in words: "a whole number ≥ 1".

    A limit that nobody comes near is left out, unless `value` is beyond it.
    """
    if hint == Devices:
        return '"auto", "all", "cpu:N" or a list of GPU indices or UUIDs'
    if hint == dict[str, str]:
        return "a table of texts"
    if hint == list[str]:
        return 'a list of strings, e.g. ["one", "two"]'
    if choices := choices_of(hint):
        return "one of " + ", ".join(choices) + _others(hint)
    if get_origin(hint) is Annotated:
        inner, *metas = get_args(hint)
        if form := next((meta.extra[FORM] for meta in metas if FORM in (meta.extra or {})), ""):
            return str(form)
        limits = [
            f"{sign} {limit}"
            for meta in metas
            for name, sign in _SIGNS
            if (limit := getattr(meta, name)) is not None
            and (abs(limit) < _FAR_LIMIT or _is_beyond(value, limit))
        ]
        return " ".join([wanted(inner, value), " and ".join(limits)]).strip()
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return " or ".join(wanted(kind, value) for kind in get_args(hint) if kind is not type(None))
    return _WORDS.get(hint, "a table")


def _is_beyond(value: Any, limit: float) -> bool:
    return isinstance(value, int | float) and abs(value) > abs(limit)
