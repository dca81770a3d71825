"""Which settings make a comparison unequal."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.analysis.comparison.fairness import compare_settings, find_unchecked
from distrain.runners.config.planning import plan_here
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig


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


def test_a_tasks_own_network_and_data_are_compared_in_place_of_those_that_it_ignores() -> None:
    configs = [load_preset("single")] * 2
    plans = [plan_here(each) for each in configs]
    own = [{"model": "Net", "data": "Lines"}, {"model": "Net", "data": "Points"}]
    equal, (found,) = compare_settings(configs, plans, declared=own)
    assert equal["model"] == "Net"
    assert (found.key, found.values, found.fair) == ("data.name", ["Lines", "Points"], False)
    older: dict[str, str] = {"model": "", "data": ""}
    assert compare_settings(configs, plans, declared=[own[0], older])[0]["model"] == "mlp"
    strange = [{"model": 5, "colour": 1}] * 2  # a bench.json that somebody else has written
    assert compare_settings(configs, plans, declared=strange)[0]["model"] == "5"


@pytest.mark.parametrize("key", ["slurm.partition", "slurm.constraint"])
def test_other_machines_are_a_difference(key: str) -> None:
    assert differences({key: "other"}) == [key]


def scripts(*arguments: str) -> list[RunConfig]:
    """Return a script once for each argument."""
    return [
        RunConfig.from_dict({"script": {"path": "train.py", "args": [each]}, "devices": "cpu:2"})
        for each in arguments
    ]


def test_what_scripts_do_not_declare_is_not_checked() -> None:
    configs = scripts("--a", "--b")
    declared: list[dict[str, Any]] = [{"lr": 0.1, "seed": 7}, {"lr": 0.2}]
    plans = [plan_here(each) for each in configs]
    equal, found = compare_settings(configs, plans, declared=declared)
    assert {each.key: (each.values, each.fair, each.checked) for each in found} == {
        "script": (["train.py --a", "train.py --b"], True, False),
        "config.lr": (["0.1", "0.2"], True, False),
    }
    assert equal == {"devices": "CPU"}
    unchecked = ["model", "data", "train_samples", "global_batch", "precision", "seed"]
    assert find_unchecked(declared) == unchecked


def test_what_scripts_declare_by_the_names_of_presets_is_checked() -> None:
    configs = [*scripts("--a", "--b"), load_preset("ddp")]
    declared: list[dict[str, Any]] = [
        {"global_batch": 32, "seed": 0},
        {"global_batch": 64, "seed": 0},
        {},
    ]
    plans = [plan_here(each) for each in configs]
    equal, found = compare_settings(configs[:2], plans[:2], declared=declared[:2])
    assert equal == {"seed": "0", "devices": "CPU"}
    assert [each.key for each in found if not each.fair] == ["global_batch"]
    with_preset = {
        each.key: each for each in compare_settings(configs, plans, declared=declared)[1]
    }
    assert with_preset["train.batch_size"].values == ["32", "64", "128"]
    assert "model.name" not in with_preset
    declared[:2] = [{"global_batch": 128.0, "train_samples": "all"}] * 2
    equal, _ = compare_settings(configs, plans, declared=declared)
    assert (equal["global batch"], equal["samples"]) == ("128", "all"), "written alike"
    assert "global_batch" not in find_unchecked(declared[:2])
