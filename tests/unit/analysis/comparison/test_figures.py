"""The figures of a run in a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.analysis.comparison.figures import compute_figures
from distrain.runners.protocol.events import HostSample, RankSample
from tests.support.records import completed_run


@pytest.mark.parametrize(
    ("changes", "other_cores"),
    [({}, 6.0), ({"launcher": "slurm"}, None), ({"hosts": ["a", "b"]}, None)],
    ids=["here", "job", "several hosts"],
)
def test_other_programs_are_known_only_on_the_host_of_the_supervisor(
    tmp_path: Path, changes: dict[str, Any], other_cores: float | None
) -> None:
    ranks = [RankSample(time=1020.0, rank=n, cpu=100.0, rss=1.0, processes=1) for n in (0, 1)]
    host = HostSample(time=1020.0, cpu=100.0, memory_used=1.0, memory_total=8.0, load=1.0)
    record = completed_run(tmp_path, lambda *_: {}, samples=[*ranks, host], **changes)
    assert compute_figures(record).other_cores == other_cores
