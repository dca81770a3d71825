"""What makes two runs unequal, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from runners.comparison.fairness import settings
from runners.plan import make_plan
from runners.presets import load_preset


def differing(changes: dict[str, Any]) -> list[str]:
    configs = [load_preset("slurm"), load_preset("slurm", changes)]
    return [each.key for each in settings(configs, [make_plan(each) for each in configs])[1]]


@pytest.mark.parametrize(
    "changes",
    [
        {"slurm.time": "1:00:00", "slurm.account": "ours", "slurm.qos": "low"},
        {"slurm.requeue": False, "slurm.poll_s": 1.0, "slurm.warn_s": 0, "slurm.report": "files"},
        {"dist.join_timeout_s": 60.0},
    ],
)
def test_what_a_job_is_submitted_with_alters_nothing_that_is_measured(
    changes: dict[str, Any],
) -> None:
    assert differing(changes) == []


@pytest.mark.parametrize("key", ["slurm.partition", "slurm.constraint"])
def test_other_machines_do(key: str) -> None:
    assert differing({key: "other"}) == [key]
