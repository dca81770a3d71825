"""How verification switches the tap on, and where the tap writes. Loads no torch."""

from __future__ import annotations

from pathlib import Path

TAP = "DISTRAIN_TAP"  # environment variable of ranks that write verification files
FOLDER = "verification"  # in the run's folder
STEPS = 3  # steps of a verified run


def tap_file(folder: Path, rank: int, step: int) -> Path:
    """Return the file that a rank writes after this step (0: before the first)."""
    return folder / f"rank-{rank}-step-{step}.pt"
