"""How a word that is being typed may continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Completions(NamedTuple):
    """What may replace a text from `start` to its end; likely ones first."""

    start: int = 0
    words: Sequence[str] = ()
