"""The plan of a config on given devices, and combinations that cannot run."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from distrain.runners.config.plan import share
from distrain.runners.config.planning import make_plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import Device, Gpus
from distrain.runners.system.host import Host

HOST = Host(cores=4, environment={}, interfaces={"lo": [ip_address("127.0.0.1")]})


def cpus(count: int) -> list[Device]:
    return [Device(kind="cpu", index=index) for index in range(count)]


def gpus(*indices: int) -> list[Device]:
    return [Device(kind="cuda", index=index, uuid=f"GPU-{index}") for index in indices]


def config(**changes: Any) -> RunConfig:
    """Return the config of a ddp run over torchrun, with `train__lr=…` for train.lr."""
    return RunConfig().with_changes(
        {key.replace("__", "."): value for key, value in changes.items()}
    )


HOROVOD = {"strategy": "horovod", "launcher": "horovodrun"}
HOROVOD_JOB = {"strategy": "horovod", "launcher": "slurm", "slurm__via": "srun"}


@given(st.integers(0, 10_000), st.integers(1, 200))
def test_shares_are_exact_and_as_equal_as_possible(total: int, parts: int) -> None:
    shares = share(total, parts)
    assert len(shares) == parts
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def test_batch_and_loader_workers_are_divided_among_ranks() -> None:
    made = make_plan(
        config(train__batch_size=100, data__workers=4, train__accumulate=5), HOST, cpus(3)
    )
    assert made.world_size == 3
    assert made.batch == [34, 33, 33]
    assert made.micro_batch == 7
    assert made.loader_workers == [2, 1, 1]
    assert made.backend == "gloo"
    assert made.devices[2] == Device(kind="cpu", index=2)


def test_more_ranks_than_cores_are_noted() -> None:
    assert make_plan(config(), HOST, cpus(4)).notices == []
    assert make_plan(config(), HOST, cpus(5)).notices == [
        "5 ranks share 4 CPU cores and will wait for each other"
    ]


def test_the_plan_depends_only_on_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("this host was asked")

    names = ("system.network.list_interfaces", "system.devices.look_up_gpus", "system.devices.nvml")
    for name in (*names, "system.devices.torch_build", "system.host.count_cores"):
        monkeypatch.setattr(f"distrain.runners.{name}", fail)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib7")
    host = structs.replace(HOST, gpus=Gpus(gpus(0, 1)))
    assert make_plan(config(), host).devices == gpus(0, 1)
    assert make_plan(config(devices=[1]), host).devices == gpus(1)
    assert make_plan(config(devices="cpu:2"), host).notices == []
    named = structs.replace(HOST, environment={"GLOO_SOCKET_IFNAME": "ib0"})
    assert make_plan(config(), named).notices == ["GLOO_SOCKET_IFNAME=ib0 of the environment wins"]
    with pytest.raises(ConfigError, match="this host has no ib0; it has lo"):
        make_plan(config(dist__interface="ib0"), HOST)


@pytest.mark.parametrize(
    ("environment", "world_size", "threads"),
    [
        ({"RANK": "0", "WORLD_SIZE": "6"}, 6, 4),
        ({"RANK": "0", "WORLD_SIZE": "6", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, 6, 2),
    ],
)
def test_launcher_env_reads_its_position_from_the_hosts_environment(
    environment: dict[str, str], world_size: int, threads: int
) -> None:
    meeting = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4242"}
    host = structs.replace(HOST, environment=environment | meeting)
    made = make_plan(config(launcher="env"), host)
    assert (made.world_size, made.threads, made.tasks) == (world_size, threads, True)


@pytest.mark.parametrize(("strategy", "launcher"), [("single", "inline"), ("dp", "inline")])
def test_one_process_has_the_whole_batch_and_no_group(strategy: str, launcher: str) -> None:
    devices = gpus(0, 1) if strategy == "dp" else gpus(0)
    asked = config(strategy=strategy, launcher=launcher, data__workers=3)
    made = make_plan(asked, HOST, devices)
    assert (made.world_size, made.batch, made.loader_workers) == (1, [128], [3])
    assert made.backend == "none"
    assert made.devices == devices


def test_ranks_share_the_cores_unless_threads_are_set() -> None:
    host = structs.replace(HOST, cores=7)
    assert make_plan(config(), host, cpus(2)).threads == 3
    assert make_plan(config(), host, cpus(9)).threads == 1
    assert make_plan(config(train__threads=5), host, cpus(2)).threads == 5


def test_the_learning_rate_is_scaled_with_the_world_size_only_on_request() -> None:
    assert make_plan(config(train__lr=0.1), HOST, cpus(4)).lr == 0.1
    assert make_plan(
        config(train__lr=0.1, train__scale_lr=True), HOST, cpus(4)
    ).lr == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("asked", "devices", "effective"),
    [
        ("auto", cpus(2), "bf16"),
        ("auto", gpus(0, 1), "fp16"),
        ("fp32", gpus(0, 1), "fp32"),
        ("tf32", gpus(0, 1), "tf32"),
        ("bf16", gpus(0, 1), "bf16"),
        ("fp16", cpus(2), "fp16"),
    ],
)
def test_auto_precision_follows_the_device(
    asked: str, devices: list[Device], effective: str
) -> None:
    made = make_plan(config(precision=asked), HOST, devices)
    assert made.precision == effective
    assert any("fp16 on CPU" in notice for notice in made.notices) == (asked == "fp16")


@pytest.mark.parametrize(
    ("asked", "devices", "backend"),
    [
        ({}, cpus(2), "gloo"),
        ({}, gpus(0, 1), "nccl"),
        ({"dist__backend": "gloo"}, gpus(0, 1), "gloo"),
        ({"oversubscribe": True}, gpus(0, 0), "gloo"),
        ({"dist__backend": "ucc"}, cpus(2), "ucc"),
        (HOROVOD, cpus(2), "horovod"),
        (HOROVOD, gpus(0, 1), "horovod"),
        ({"strategy": "mine:Own", "launcher": "horovodrun"}, cpus(2), "horovod"),
    ],
)
def test_the_backend_follows_the_device(
    asked: dict[str, Any], devices: list[Device], backend: str
) -> None:
    assert make_plan(config(**asked), HOST, devices).backend == backend


IMPOSSIBLE = [
    ({"strategy": "single", "launcher": "inline"}, gpus(0, 1), "devices", "one device"),
    ({"strategy": "dp", "launcher": "inline"}, cpus(2), "devices", "one process"),
    ({"launcher": "inline"}, cpus(2), "launcher", "spawn or torchrun"),
    ({"strategy": "horovod"}, cpus(2), "launcher", "use horovodrun"),
    ({"launcher": "horovodrun"}, cpus(2), "launcher", "ddp needs torchrun or spawn"),
    ({**HOROVOD, "dist__backend": "gloo"}, cpus(2), "dist.backend", "leave it at auto"),
    ({**HOROVOD, "dist__nodes": 2, "horovod__via": "mpirun"}, cpus(2), "horovod.via", "one host"),
    ({"dist__nodes": 2, "launcher": "spawn"}, cpus(2), "dist.nodes", "several need torchrun or"),
    ({"dist__nodes": 2, "launcher": "slurm"}, cpus(2), "dist.nodes", "Slurm job are slurm.nodes"),
    ({"dist__nodes": 2, "dist__rendezvous": "n1"}, cpus(2), "dist.rendezvous", "not HOST:PORT"),
    ({"dist__nodes": 2, "dist__rendezvous": "n1:99999"}, cpus(2), "dist.rendezvous", "HOST:PORT"),
    ({"dist__nodes": 2, "dist__node_rank": 1}, cpus(2), "dist.rendezvous", "needs HOST:PORT"),
    (
        {"dist__node_rank": 1, "dist__rendezvous": "n1:1"},
        cpus(2),
        "dist.node_rank",
        "there is no 1",
    ),
    ({**HOROVOD, "train__channels_last": True}, cpus(2), "train.channels_last", "contiguous"),
    ({"train__ema": 0.9, "train__swa_share": 0.5}, cpus(2), "train.swa_share", "in one way"),
    ({**HOROVOD, "train__sync_batchnorm": True}, gpus(0, 1), "train.sync_batchnorm", "group"),
    ({**HOROVOD_JOB, "dist__backend": "gloo"}, cpus(2), "dist.backend", "leave it at auto"),
    ({**HOROVOD_JOB, "train__channels_last": True}, cpus(2), "train.channels_last", "contiguous"),
    ({**HOROVOD_JOB, "train__sync_batchnorm": True}, gpus(0, 1), "train.sync_batchnorm", "group"),
    ({"precision": "tf32"}, cpus(2), "precision", "on CPU use"),
    ({"dist__backend": "nccl"}, cpus(2), "dist.backend", "use gloo"),
    ({}, gpus(0, 0), "devices", "oversubscribe"),
    ({"oversubscribe": True, "dist__backend": "nccl"}, gpus(0, 0), "dist.backend", "two ranks"),
    ({"train__sync_batchnorm": True}, cpus(2), "train.sync_batchnorm", "needs GPUs"),
    (
        {"strategy": "single", "launcher": "inline", "train__sync_batchnorm": True},
        gpus(0),
        "train.sync_batchnorm",
        "process group",
    ),
    (
        {"strategy": "dp", "launcher": "inline", "train__compile": True},
        gpus(0, 1),
        "train.compile",
        "DataParallel",
    ),
    (
        {"ddp__static_graph": True, "ddp__find_unused_parameters": True},
        cpus(2),
        "ddp.find_unused_parameters",
        "set one",
    ),
    (
        {"ddp__comm_hook": "powerSGD", "ddp__find_unused_parameters": True},
        cpus(2),
        "ddp.comm_hook",
        "unused parameter",
    ),
    ({"train__batch_size": 3}, cpus(4), "train.batch_size", "4 ranks"),
    ({"train__batch_size": 7, "train__accumulate": 4}, cpus(2), "train.batch_size", "4 micro"),
]


@pytest.mark.parametrize(("asked", "devices", "key", "reason"), IMPOSSIBLE)
def test_an_impossible_combination_is_refused_with_its_reason(
    asked: dict[str, Any], devices: list[Device], key: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_plan(config(**asked), HOST, devices)
    assert [name for name, _ in caught.value.problems] == [key]
    assert reason in caught.value.problems[0][1]


def test_all_impossible_combinations_are_reported_at_once() -> None:
    asked = config(launcher="inline", precision="tf32", dist__backend="nccl", train__batch_size=1)
    with pytest.raises(ConfigError) as caught:
        make_plan(asked, HOST, cpus(2))
    assert {key for key, _ in caught.value.problems} == {
        "launcher",
        "precision",
        "dist.backend",
        "train.batch_size",
    }


@pytest.mark.parametrize(
    ("devices", "said"), [(cpus(1), True), (gpus(0), True), (gpus(0, 1), False)]
)
def test_dp_notes_that_nothing_is_parallel(devices: list[Device], said: bool) -> None:
    made = make_plan(config(strategy="dp", launcher="inline"), HOST, devices)
    assert any("nothing is parallel" in notice for notice in made.notices) == said


def test_each_rank_and_micro_batch_may_have_a_single_sample() -> None:
    made = make_plan(config(train__batch_size=8, train__accumulate=2), HOST, cpus(4))
    assert (made.batch, made.micro_batch) == ([2, 2, 2, 2], 1)


@pytest.mark.parametrize(
    ("environment", "timeline", "notices"),
    [
        ({}, False, []),
        ({}, True, ["Horovod's timeline is written to horovod-timeline.json in the run's folder"]),
        (
            {"HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_CYCLE_TIME": "", "HOROVOD_RANK": "3"},
            False,
            ["HOROVOD_STALL_CHECK_DISABLE=1 of the environment wins over the config"],
        ),
        (
            {"HOROVOD_TIMELINE": "/mine.json"},
            True,
            ["HOROVOD_TIMELINE=/mine.json of the environment wins over the config"],
        ),
    ],
)
def test_variables_that_are_set_for_horovod_are_noted(
    environment: dict[str, str], timeline: bool, notices: list[str]
) -> None:
    host = structs.replace(HOST, environment=environment)
    made = make_plan(config(**HOROVOD, horovod__timeline=timeline), host, cpus(2))
    assert made.notices == notices
