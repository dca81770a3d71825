"""How ranks and runs are told apart: by colour, by mark and by the pattern of their line."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

# Okabe and Ito, "Color Universal Design" (2008), ordered so that neighbours differ in
# lightness too; black, which no dark screen shows, is left out.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00")
SHAPES = "●■▲◆▼★✚✖"
RUN_SHAPES = "▲▼◆★✚◢◤◧"  # none that stands for a status
# Dots of a line that are drawn, of every so many.
PATTERNS = ((1, 1), (3, 4), (1, 2), (4, 6))


class Mark(NamedTuple):
    colour: str
    shape: str
    pattern: tuple[int, int] = (1, 1)


RUN_MARK = Mark("", "○")  # of a whole run among its ranks: the text's own colour


def of_rank(rank: int) -> Mark:
    """The same on every screen; 56 ranks before one repeats."""
    return _mark(rank, SHAPES)


def _mark(number: int, shapes: str) -> Mark:
    return Mark(
        COLOURS[number % len(COLOURS)],
        shapes[number % len(shapes)],
        PATTERNS[number // len(COLOURS) % len(PATTERNS)],
    )


def of_runs(run_ids: Sequence[str]) -> list[Mark]:
    """The marks of runs that are seen together: where two have one shape, the later one gets the
    next that is free, for colours alone may not be told apart.
    """
    found: list[Mark] = []
    for mark in map(of_run, run_ids):
        taken = {other.shape for other in found}
        at = RUN_SHAPES.index(mark.shape)
        shapes = [shape for shape in RUN_SHAPES[at:] + RUN_SHAPES[:at] if shape not in taken]
        found.append(mark._replace(shape=shapes[0]) if shapes else mark)
    return found


def of_run(run_id: str) -> Mark:
    """Follows from the id alone, so that a run looks alike in every list and on every day."""
    return _mark(zlib.crc32(run_id.encode()) % (len(COLOURS) * len(RUN_SHAPES)), RUN_SHAPES)
