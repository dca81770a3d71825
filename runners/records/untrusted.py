"""Decoding of JSON in a record that somebody else may have written.

Types are checked and text is neutralised here, once, so that no command or screen has to.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from distrain.runners import formatting

T = TypeVar("T")
MAX_DEPTH = 32  # of nested values, which commands print recursively
MANY_BRACKETS = 256  # with fewer, a text cannot be nested too deeply for Python
# Keys whose texts may have several lines.
_LONG = ("message", "traceback", "text", "reason", "notes")
# JSON that decodes to text which is not printable: as escapes, or as it is. Escaped line breaks
# and tabs are left to `_clean` too, because most texts have none.
_SUSPICIOUS = re.compile(rf"\\[bfnrtu]|[{formatting.INVISIBLE}]")


def decode(data: bytes, kind: type[T], unchanged: Collection[str] = ()) -> T:
    """Return the value of a JSON text, with printable text only.

    The texts of the keys in `unchanged`, of the outermost object, stay as they are. Raises
    ValueError, whose text says what is wrong.
    """
    try:
        text = data.decode()
        value = msgspec.json.decode(data, type=kind)
        brackets = text.count("{") + text.count("[")
        if brackets <= MANY_BRACKETS and (_is_plain(data) or not _SUSPICIOUS.search(text)):
            return value
        plain = msgspec.json.decode(data)
        kept = {key: plain[key] for key in unchanged if key in plain}
        return msgspec.convert(_clean(plain) | kept if kept else _clean(plain), kind)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except msgspec.MsgspecError as error:
        raise ValueError(formatting.printable(str(error))) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _is_plain(data: bytes) -> bool:
    """Return whether a JSON text surely has nothing suspicious; far faster than the search."""
    return data.isascii() and b"\\" not in data and b"\x7f" not in data


def _clean(value: Any, key: str = "", depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, str):
        return formatting.printable_lines(value) if key in _LONG else formatting.printable(value)
    if isinstance(value, dict):
        return {
            formatting.single_line(name): _clean(item, name, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_clean(item, key, depth + 1) for item in value]
    return value
