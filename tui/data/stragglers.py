"""Who holds the others back: an all-reduce gives all ranks the same step time, so look at waits."""

from __future__ import annotations

from collections.abc import Sequence

from runners.snapshot import RankNow

CLEAR = 0.1  # share of the time by which the others must wait longer


def held_up_by(ranks: Sequence[RankNow]) -> int | None:
    """The rank that the others wait for: clearly the one that waits least; None where none is."""
    waits = sorted((now.shares["comm"], now.info.rank) for now in ranks if now.shares)
    if len(waits) < 2 or len(waits) < len(ranks):
        return None
    (least, rank), (next_least, _) = waits[:2]
    return rank if next_least - least >= CLEAR else None
