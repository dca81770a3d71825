"""How verification switches the tap on, and where the tap writes. Loads no torch."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

TAP = "DISTRAIN_TAP"  # environment variable of ranks that write verification files: which steps
FOLDER = "verification"  # in the run's folder
STEPS = 20  # of a verified run, unless the user sets another number
FIRST_STEPS = 3  # are compared in every run, and have shares of different sizes
RANDOM_STEPS = 3  # are compared between those and the last


def draw_steps(steps: int) -> list[int]:
    """Return the steps to compare of a run: the first three, the last, and random ones between."""
    first = range(1, min(FIRST_STEPS, steps) + 1)
    between = range(FIRST_STEPS + 1, steps)
    drawn = random.sample(between, min(RANDOM_STEPS, len(between)))
    return sorted({*first, *drawn, steps})


def format_steps(steps: Iterable[int]) -> str:
    """Return the value of the variable TAP."""
    return ",".join(map(str, steps))


def parse_steps(text: str) -> list[int]:
    """Return the steps of the variable TAP."""
    return [int(part) for part in text.split(",")]


def tap_file(folder: Path, rank: int, step: int) -> Path:
    """Return the file that a rank writes after this step (0: before the first)."""
    return folder / f"rank-{rank}-step-{step}.pt"


def digests_file(folder: Path, rank: int) -> Path:
    """Return the file to which a rank adds a line of digests after each step."""
    return folder / f"rank-{rank}.digests"


def evaluated_file(folder: Path, rank: int) -> Path:
    """Return the file with digests of the weights and buffers that a rank evaluated last."""
    return folder / f"rank-{rank}.evaluated"


def weights_file(folder: Path, step: int) -> Path:
    """Return the file with the weights after a step, which only an average of weights needs."""
    return folder / f"weights-{step}.pt"
