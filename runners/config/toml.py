"""Reading of untrusted TOML, and tables as dotted keys."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from distrain.runners import formatting

MOST_CHARACTERS = 1 << 24
MOST_PAIRS = 20_000_000
_NAME = r'(?:[\w-]++|"[^"\n]*+"|\'[^\'\n]*+\')'
_LONG_KEY = re.compile(rf"(?<![\w-]){_NAME}(?:[ \t]*+\.[ \t]*+{_NAME}){{16,}}+")


def loads(text: str) -> dict[str, Any]:
    """Return what `tomllib.loads` returns; a byte order mark is left out.

    Raises ValueError and RecursionError as it does.
    """
    if len(text) > MOST_CHARACTERS:
        raise tomllib.TOMLDecodeError(f"it is longer than {MOST_CHARACTERS:,} characters")
    # The time that tomllib takes for a key is the square of the number of its parts.
    if sum(key[0].count(".") ** 2 for key in _LONG_KEY.finditer(text)) > MOST_PAIRS:
        raise tomllib.TOMLDecodeError("its dotted keys have too many parts")
    return tomllib.loads(text.removeprefix("\ufeff"))


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted keys, which are printable."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[formatting.printable(prefix + key)] = value
    return found
