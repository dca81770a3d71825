"""JSON of somebody else: types are checked, text is neutralised, damage is one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.records.untrusted import decode


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b'{"a": [' + b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 200 + b'"\\u001b"' + b"}" * 200, "nested too deeply"),
        (b"[1]", "Expected `object`"),
        (b"{", "truncated"),
    ],
)
def test_damage_is_a_value_error(data: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        decode(data, dict[str, Any])


def test_text_is_printable_wherever_it_is() -> None:
    data = rb'{"a\u001b": ["b\u009b\n", {"text": "1\r\n2\t\b"}], "c": "\u200f", "d": "\u001b"}'
    assert decode(data, dict[str, Any], unchanged=("d",)) == {
        "a·": ["b··", {"text": "1\n2\t·"}],
        "c": "·",
        "d": "\x1b",
    }


def test_text_of_plain_ascii_is_checked_too() -> None:
    assert decode(b'{"a": "\x7f", "b": "\\u001b"}', dict[str, Any]) == {"a": "·", "b": "·"}
