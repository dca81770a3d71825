"""The steady part of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.analysis.comparison.steady_state import find_steady_part
from tests.support.records import STEP_S, RunBuilder


def test_the_steady_part_is_found_although_the_clock_was_set_back(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, world=1).steps(10)
    run.now -= 7200.0
    part = find_steady_part(run.steps(30).end().record)
    assert part is not None
    assert part.step == 0
    assert part.rates == pytest.approx([64 / STEP_S] * len(part.rates))
