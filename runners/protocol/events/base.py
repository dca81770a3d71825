"""What all messages have in common."""

from __future__ import annotations

from typing import Annotated

import msgspec

VERSION = 1
# Integers that every JSON reader and SQLite can represent exactly.
NEVER = 1 << 53
Int = Annotated[int, msgspec.Meta(ge=-NEVER, le=NEVER)]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """A message; one line on the wire."""
