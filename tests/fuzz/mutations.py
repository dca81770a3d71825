"""Changes of structured values, which mutations of bytes rarely make."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

HOSTILE_TEXTS = (
    "",
    "\x1b]0;title\x07",
    "\x1b[31m",
    "\x9b2J",
    "\u202eabc\u2066",
    "a\nb\r\nc\td\x85e\u2028f",
    "\x00",
    "\ufeff",
    "x" * 3000,
    "../../../etc/passwd",
    "%s{0}[bold]",
    "1e999",
    "\U0001f600é",
)
HOSTILE_NUMBERS = (
    *(0, 1, -1, 2, 127, 1000, 99_999, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63),
    *(-(2**63), 2**64, 10**30, 0.0, -0.0, 0.5, -1.5, 1e-320, 1e30, 1e308, -1e308),
)
HOSTILE_VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], [0], ["x"], {"": 0}, {"a": {"b": []}}),
    *HOSTILE_TEXTS,
    *HOSTILE_NUMBERS,
)


def hostile_value(random: Random) -> Any:
    """Return a value of any type; rarely one that is nested deeply."""
    value = random.choice(HOSTILE_VALUES)
    if random.random() < 0.02:
        for _ in range(random.choice((20, 40, 300))):
            value = [value] if random.random() < 0.5 else {"k": value}
    return value


def paths_in(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each value inside of a value."""
    if isinstance(value, dict):
        items: Sequence[tuple[Any, Any]] = [*value.items()]
    else:
        items = [*enumerate(value)] if isinstance(value, list) else []
    found = []
    for key, inner in items:
        path = (*prefix, key)
        found.append(path)
        found += paths_in(inner, path)
    return found


def changed(value: Any, random: Random) -> Any:
    """Return a JSON value with one change, which is made in place."""
    return apply_change(value, new_change(value, random))


def new_change(value: Any, random: Random) -> dict[str, Any]:
    """Return a change of a JSON value, for `apply_change`; it is JSON too."""
    paths = paths_in(value)
    if not paths:
        return {"path": [], "value": hostile_value(random)}
    path = random.choice(paths)
    change: dict[str, Any] = {"path": [*path]}
    chance = random.random()
    if chance < 0.15:
        return {**change, "delete": True}
    if chance < 0.25:
        return {**change, "key": random.choice(HOSTILE_TEXTS)}
    if chance < 0.35:
        return {**change, "times": random.choice((1, 2, 50))}
    if chance < 0.5:
        return {**change, "from": [*random.choice(paths)]}
    found = _at(value, path)
    if chance < 0.6 and isinstance(found, int | float):
        return {**change, "value": found + random.choice((-1, 1, 0.5))}
    return {**change, "value": _hostile_like(found, random)}


def apply_change(value: Any, change: dict[str, Any]) -> Any:
    """Return the value with the change. Raises LookupError or TypeError where it does not fit."""
    if not change["path"]:
        return change["value"]
    *parents, key = change["path"]
    parent = _at(value, parents)
    if "delete" in change:
        del parent[key]
    elif "key" in change and isinstance(parent, dict):
        parent[change["key"]] = parent[key]
    elif "times" in change and isinstance(parent, list):
        parent.extend([parent[key]] * change["times"])
    elif "from" in change:  # a value of another place
        parent[key] = copy.deepcopy(_at(value, change["from"]))
    elif "value" in change:
        parent[key] = change["value"]
    return value


def _at(value: Any, path: Iterable[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def _hostile_like(value: Any, random: Random) -> Any:
    """Return a hostile value, mostly of the same type: others are refused early."""
    if random.random() < 0.7:
        if isinstance(value, str):
            return random.choice(HOSTILE_TEXTS)
        if isinstance(value, float):
            return float(random.choice(HOSTILE_NUMBERS))
        if isinstance(value, int) and not isinstance(value, bool):
            return int(random.choice(HOSTILE_NUMBERS))
    return hostile_value(random)
