"""Changes of structured values, which mutations of bytes rarely make."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    paths = paths_in(value)
    if not paths:
        return hostile_value(random)
    *parents, key = random.choice(paths)
    parent = value
    for name in parents:
        parent = parent[name]
    chance = random.random()
    if chance < 0.15:
        del parent[key]
    elif chance < 0.25 and isinstance(parent, dict):
        parent[random.choice(HOSTILE_TEXTS)] = parent[key]
    elif chance < 0.35 and isinstance(parent, list):
        parent.extend([parent[key]] * random.choice((1, 2, 50)))
    elif chance < 0.5:  # a value of another place
        other = value
        for name in random.choice(paths):
            other = other[name]
        parent[key] = json.loads(json.dumps(other))
    elif chance < 0.6 and isinstance(parent[key], int | float):
        parent[key] += random.choice((-1, 1, 0.5))
    else:
        parent[key] = hostile_value(random)
    return value
