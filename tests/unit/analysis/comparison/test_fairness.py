"""Which settings make a comparison unequal."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.analysis.comparison.fairness import compare_settings
from distrain.runners.config.planning import plan_here
from distrain.runners.config.presets import load_preset


def differences(changes: dict[str, Any]) -> list[str]:
    configs = [load_preset("slurm"), load_preset("slurm", changes)]
    return [
        each.key for each in compare_settings(configs, [plan_here(each) for each in configs])[1]
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"slurm.time": "1:00:00", "slurm.account": "ours", "slurm.qos": "low"},
        {"slurm.requeue": False, "slurm.poll_s": 1.0, "slurm.warn_s": 0, "slurm.report": "files"},
        {"dist.join_timeout_s": 60.0},
    ],
)
def test_the_conditions_of_a_slurm_job_are_ignored(
    changes: dict[str, Any],
) -> None:
    assert differences(changes) == []


@pytest.mark.parametrize("key", ["slurm.partition", "slurm.constraint"])
def test_other_machines_are_a_difference(key: str) -> None:
    assert differences({key: "other"}) == [key]
