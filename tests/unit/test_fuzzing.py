"""Inputs that fuzzing has found to be handled wrongly, and a few of its corpora, are checked again.

`make fuzz` tries new ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
AT_MOST = 40  # of a corpus


@pytest.mark.parametrize("target", ["decoder", "presets", "records"])
def test_inputs_of_fuzzing(target: str) -> None:
    """In a process of its own, as a target replaces stderr and limits of the server."""
    found = sorted((FUZZ / "found" / target).glob("*"))
    corpus = sorted((FUZZ / "corpus" / target).glob("*"))
    names = map(str, [*found, *corpus[: AT_MOST // (4 if target == "records" else 1)]])
    command = [sys.executable, "-m", "tests.fuzz.replay", target, *names]
    done = subprocess.run(command, cwd=FUZZ.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
