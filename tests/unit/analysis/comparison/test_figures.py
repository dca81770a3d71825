"""The figures of a run in a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.analysis.comparison.curves import MAX_POINTS, read_curves
from distrain.runners.analysis.comparison.figures import compute_figures
from distrain.runners.protocol.events import GpuSample, HostSample, RankSample
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


def gpu_samples(gpu: int, start: float, count: int) -> list[GpuSample]:
    """Return a sample per second of a GPU that takes 200 W at first, and 300 W from 1,000 s on."""
    return [
        GpuSample(
            time=second,
            gpu=gpu,
            uuid=f"GPU-{gpu}",
            name="GPU",
            utilisation=80.0,
            power=200.0 if second < 1000 else 300.0,
        )
        for second in (start + tick for tick in range(count))
    ]


@pytest.mark.parametrize(
    ("gpus", "before", "after"),
    [
        ([(0, 900, 200), (1, 900, 200)], 400, 600),
        ([(0, 900, 50), (3, 1050, 50)], 200, 300),  # a requeued job got another GPU
        ([(0, 0, 8 * MAX_POINTS - 1), (9, 0.5, 8 * MAX_POINTS + 2)], 400, 600),  # on other levels
        ([(0, 990, 20), (9, 990.7, 20)], 400, 600),
    ],
)
def test_curves_of_gpus_are_combined_by_time(
    tmp_path: Path, gpus: list[tuple[int, float, int]], before: float, after: float
) -> None:
    samples = [sample for gpu in gpus for sample in gpu_samples(*gpu)]
    curves = read_curves(completed_run(tmp_path, lambda *_: {}, samples=samples))
    power = curves["power"]
    assert len(power.values) <= MAX_POINTS
    values = [value for value in power.values if value is not None]
    assert (min(values), max(values)) == (before, after)
    assert values == sorted(values)
    ends = [start + count - 1 for _, start, count in gpus]
    assert power.time[-1] - power.time[0] > 0.9 * (max(ends) - gpus[0][1])
    assert set(curves["gpu"].values) == {80.0}
