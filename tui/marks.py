"""The colour, shape and line pattern by which ranks and runs are distinguished."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

# Okabe and Ito, "Color Universal Design" (2008), ordered so that neighbours differ in lightness
# too, without black, which is invisible on a dark screen.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00")
SHAPES = "●■▲◆▼★✚✖"
RUN_SHAPES = "▲▼◆★✚◢◤◧"  # none of these stands for a status
PATTERNS = ((1, 1), (3, 4), (1, 2), (4, 6))  # (n, m): n of every m dots of a line are drawn


class Mark(NamedTuple):
    colour: str
    shape: str
    pattern: tuple[int, int] = (1, 1)


RUN_MARK = Mark("", "○")  # a whole run among its ranks, in the colour of the text


def rank_mark(rank: int) -> Mark:
    """Return the mark of a rank, the same on every screen. Rank 56 has the mark of rank 0."""
    return _mark(rank, SHAPES)


def _mark(number: int, shapes: str) -> Mark:
    return Mark(
        COLOURS[number % len(COLOURS)],
        shapes[number % len(shapes)],
        PATTERNS[number // len(COLOURS) % len(PATTERNS)],
    )


def run_mark(run_id: str) -> Mark:
    """Return the mark of a run. It depends on the id alone: the same in every list, always."""
    return _mark(zlib.crc32(run_id.encode()) % (len(COLOURS) * len(RUN_SHAPES)), RUN_SHAPES)


def run_marks(run_ids: Sequence[str]) -> list[Mark]:
    """Return the marks of runs that are shown together.

    Where two have the same shape, the later one gets the next free shape, because colour alone
    may not distinguish them.
    """
    result: list[Mark] = []
    for mark in map(run_mark, run_ids):
        taken = {other.shape for other in result}
        start = RUN_SHAPES.index(mark.shape)
        free = [shape for shape in RUN_SHAPES[start:] + RUN_SHAPES[:start] if shape not in taken]
        result.append(mark._replace(shape=free[0]) if free else mark)
    return result
