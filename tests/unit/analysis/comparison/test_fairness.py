"""Which settings make a comparison unequal."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from distrain.runners.analysis.comparison.fairness import (
    compare_settings,
    count_resources,
    find_unchecked,
)
from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import plan_here
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.system.devices import Device


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


def plan(kind: Literal["cpu", "cuda"], devices: int, uuid: str = "", **changes: Any) -> Plan:
    each = [Device(kind=kind, index=0 if uuid else n, uuid=uuid) for n in range(devices)]
    fields: dict[str, Any] = {"devices": each, "threads": 4, "backend": "gloo", **changes}
    return Plan(**fields)


@pytest.mark.parametrize(
    ("made", "count"),
    [
        (plan("cuda", 4, world_size=8, nodes=2, scheduled=True), 8),
        (plan("cuda", 4, world_size=8, tasks=True), 8),
        (plan("cuda", 2, uuid="GPU-0", world_size=2), 1),
        (plan("cpu", 2, world_size=4, nodes=2), 16),
        (plan("cpu", 4, world_size=4), 8),
        (plan("cpu", 4, world_size=4, scheduled=True), 16),
    ],
    ids=["a job", "other hosts", "one GPU", "two hosts", "few cores", "cores of a job"],
)
def test_efficiency_is_relative_to_the_devices_of_all_hosts(made: Plan, count: int) -> None:
    assert count_resources(made, host_cores=8) == count


@pytest.mark.parametrize(("numbers", "is_fair"), [((1, 4), True), ((2, 4), False)])
def test_only_one_gpu_of_a_job_is_compared_with_all(
    numbers: tuple[int, int], is_fair: bool
) -> None:
    plans = [plan("cuda", number, world_size=number, scheduled=True) for number in numbers]
    _, found = compare_settings([load_preset("slurm")] * 2, plans)
    assert {each.key: each.fair for each in found}["devices"] == is_fair


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
