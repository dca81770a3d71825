"""The colour, shape and line pattern by which ranks and runs are distinguished."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

# Okabe and Ito, "Color Universal Design" (2008), ordered so that neighbours differ in lightness
# too, with grey in place of black, which is invisible on a dark screen.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00", "#999999")
SHAPES = "●■▲◆▼★✚✖"
RUN_SYMBOLS = "▲▼◆★✚◢◤◧"  # none of these stands for a status
# Letters follow, without those that look like a symbol.
RUN_SHAPES = RUN_SYMBOLS + "".join(each for each in string.ascii_letters if each not in "OoVvXx")
MOST_RUN_MARKS = math.lcm(len(RUN_SHAPES), len(COLOURS))  # until a shape has its colour again
PATTERNS = ((1, 1), (3, 4), (1, 2), (4, 6))  # (n, m): n of every m dots of a line are drawn


class Mark(NamedTuple):
    colour: str
    shape: str
    pattern: tuple[int, int] = (1, 1)


RUN_MARK = Mark("", "○")  # a whole run among its ranks, in the colour of the text


def rank_mark(rank: int) -> Mark:
    """Return the mark of a rank, the same on every screen. Rank 32 has the mark of rank 0."""
    return _mark(rank, SHAPES)


def _mark(number: int, shapes: str) -> Mark:
    return Mark(
        COLOURS[number % len(COLOURS)],
        shapes[number % len(shapes)],
        PATTERNS[number // len(COLOURS) % len(PATTERNS)],
    )


def first_marks(count: int) -> list[Mark]:
    """Return the marks of so many candidates of a bench, which are in one picture."""
    return [_mark(number, RUN_SHAPES) for number in range(count)]


class RunMarks:
    """The mark of each run, the same on every screen of the app.

    Among the runs that were shown last no two have the same mark: a run gets the next free one when
    it is shown first, and later that of the run that was not shown for the longest time.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # by run id, the run that was shown last at the end

    def of(self, run_id: str) -> Mark:
        """Return the mark of a run that is shown now."""
        number = self._numbers.pop(run_id, None)
        if number is None:
            number = len(self._numbers)
            if number == MOST_RUN_MARKS:
                number = self._numbers.pop(next(iter(self._numbers)))
        self._numbers[run_id] = number
        return _mark(number, RUN_SHAPES)

    def in_one_picture(self, run_ids: Sequence[str]) -> list[Mark]:
        """Return the marks of runs whose lines are in one plot.

        Where two have the same colour, the later one gets the next free one. When all colours are
        taken, another pattern distinguishes lines of one colour.
        """
        result: list[Mark] = []
        for mark in map(self.of, run_ids):
            shape = _first_free(RUN_SHAPES, mark.shape, [other.shape for other in result])
            colours = _from(COLOURS, mark.colour)
            looks = [(colour, pattern) for pattern in PATTERNS for colour in colours]
            taken = [(other.colour, other.pattern) for other in result]
            colour, pattern = _first_free(looks, looks[0], taken)
            result.append(Mark(colour, shape, pattern))
        return result


def _first_free(choices: Sequence[T], wanted: T, taken: Sequence[T]) -> T:
    """Return the first choice from the wanted one on that is not taken; else the wanted one."""
    return next((each for each in _from(choices, wanted) if each not in taken), wanted)


def _from(choices: Sequence[T], first: T) -> list[T]:
    start = choices.index(first)
    return [*choices[start:], *choices[:start]]
