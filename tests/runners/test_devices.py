"""Which GPUs there are, which of them a run takes, and the sentence where that is impossible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import LOST, NO_DRIVER, FakeNvml, fake_torch, gpu, mig_instances, uuid_of

from runners.config import RunConfig
from runners.devices import Device, devices_for, torch_has_cuda, visible_devices
from runners.errors import ConfigError

LISTING = """
import json
from runners.devices import gpus
print(json.dumps([[device.index, device.uuid] for device in gpus()]))
"""

CHOICE = """
import json, sys
from runners.config import RunConfig
from runners.devices import devices_for, visible_devices
from runners.errors import ConfigError
choice, strategy = json.loads({asked!r})
try:
    chosen = devices_for(RunConfig(devices=choice, strategy=strategy))
    answer = [[device.kind, device.index, device.uuid] for device in chosen]
    print(json.dumps({{"chosen": answer, "visible": visible_devices(chosen)}}))
except ConfigError as error:
    print(json.dumps({{"problems": error.problems}}))
"""


def listed(machine: FakeNvml, **environment: str) -> list[int]:
    return [index for index, _ in json.loads(machine.python(LISTING, **environment))]


@pytest.fixture
def torch_with_cuda(tmp_path: Path) -> str:
    return str(fake_torch(tmp_path))


def choose(
    machine: FakeNvml, torch: str, devices: Any, strategy: str = "ddp", **environment: str
) -> Any:
    code = CHOICE.format(asked=json.dumps([devices, strategy]))
    return json.loads(machine.python(code, PYTHONPATH=torch, **environment))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_every_gpu_of_the_driver_is_listed(fake_nvml: FakeNvml, count: int) -> None:
    fake_nvml.has(count)
    there = json.loads(fake_nvml.python(LISTING))
    assert there == [[index, uuid_of(index)] for index in range(count)]


def test_without_a_driver_there_is_no_gpu(fake_nvml: FakeNvml) -> None:
    fake_nvml.has(2, init=NO_DRIVER)
    assert listed(fake_nvml) == []
    assert listed(fake_nvml, **fake_nvml.without_driver) == []


def test_a_lost_gpu_is_left_out(fake_nvml: FakeNvml) -> None:
    fake_nvml.has([gpu(0), gpu(1, lost=LOST), gpu(2)])
    assert listed(fake_nvml) == [0, 2]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("2,0", [2, 0]),
        ("", []),
        ("-1", []),
        ("1,7,0", [1]),
        ("1,1", []),
        ("1, 2", [1, 2]),
        (uuid_of(2), [2]),
        ("GPU-00000001,GPU-00000000", [1, 0]),
        ("GPU-0000000", []),
        ("GPU-00000001,GPU-ffff,GPU-00000000", [1]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_does(
    fake_nvml: FakeNvml, value: str, seen: list[int]
) -> None:
    fake_nvml.has(3)
    assert listed(fake_nvml, CUDA_VISIBLE_DEVICES=value) == seen


def test_a_gpu_in_mig_mode_is_its_instances(fake_nvml: FakeNvml) -> None:
    instances = mig_instances(1, 2)
    fake_nvml.has([gpu(0), gpu(1, mig=1, instances=instances)])
    there = json.loads(fake_nvml.python(LISTING))
    assert there == [[0, uuid_of(0)], *([1, part["uuid"]] for part in instances.values())]


def test_mig_is_one_instance_per_run(fake_nvml: FakeNvml, torch_with_cuda: str) -> None:
    instances = mig_instances(0, 2)
    fake_nvml.has([gpu(0, mig=1, instances=instances)])
    uuids = [part["uuid"] for part in instances.values()]
    assert choose(fake_nvml, torch_with_cuda, "auto")["visible"] == uuids[0]
    assert choose(fake_nvml, torch_with_cuda, [uuids[1]])["visible"] == uuids[1]
    [[key, text]] = choose(fake_nvml, torch_with_cuda, uuids)["problems"]
    assert key == "devices"
    assert "one MIG instance" in text


@pytest.mark.parametrize(
    ("strategy", "indices"),
    [("ddp", [0, 1]), ("allreduce", [0, 1]), ("dp", [0, 1]), ("single", [0])],
)
def test_auto_takes_all_gpus_and_single_one(
    fake_nvml: FakeNvml, torch_with_cuda: str, strategy: str, indices: list[int]
) -> None:
    fake_nvml.has(2)
    answer = choose(fake_nvml, torch_with_cuda, "auto", strategy)
    assert answer["chosen"] == [["cuda", index, uuid_of(index)] for index in indices]
    assert answer["visible"] == ",".join(uuid_of(index) for index in indices)


@pytest.mark.parametrize(("strategy", "count"), [("ddp", 2), ("dp", 1), ("single", 1)])
def test_auto_is_cpu_where_torch_has_no_cuda(
    fake_nvml: FakeNvml, tmp_path: Path, strategy: str, count: int
) -> None:
    fake_nvml.has(2)
    answer = choose(fake_nvml, str(fake_torch(tmp_path, cuda=None)), "auto", strategy)
    assert answer == {"chosen": [["cpu", index, ""] for index in range(count)], "visible": ""}


@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        ("all", [0, 1, 2]),
        ([2, 0], [2, 0]),
        ("2,0", [2, 0]),
        ([uuid_of(1)], [1]),
        (["GPU-00000002", 1], [2, 1]),
        ([1, 1], [1, 1]),
        ("cpu:3", None),
    ],
)
def test_devices_are_taken_as_listed(
    fake_nvml: FakeNvml, torch_with_cuda: str, devices: Any, indices: list[int] | None
) -> None:
    fake_nvml.has(3)
    answer = choose(fake_nvml, torch_with_cuda, devices)
    if indices is None:
        assert answer["chosen"] == [["cpu", index, ""] for index in range(3)]
    else:
        assert answer["chosen"] == [["cuda", index, uuid_of(index)] for index in indices]
        assert answer["visible"] == ",".join(uuid_of(index) for index in dict.fromkeys(indices))


def test_every_missing_gpu_is_named_with_those_there_are(
    fake_nvml: FakeNvml, torch_with_cuda: str
) -> None:
    fake_nvml.has(2)
    problems = choose(fake_nvml, torch_with_cuda, [0, 5, "GPU-ffff", "GPU-0000000"])["problems"]
    assert [key for key, _ in problems] == ["devices"] * 3
    five, ffff, ambiguous = (text for _, text in problems)
    assert "no GPU 5" in five
    assert uuid_of(0) in five
    assert uuid_of(1) in five
    assert "no GPU GPU-ffff" in ffff
    assert "2 GPUs" in ambiguous


def test_a_gpu_hidden_by_the_user_is_said_to_be(fake_nvml: FakeNvml, torch_with_cuda: str) -> None:
    fake_nvml.has(2)
    [[_, text]] = choose(fake_nvml, torch_with_cuda, [0], CUDA_VISIBLE_DEVICES="1")["problems"]
    assert "CUDA_VISIBLE_DEVICES=1" in text
    [[_, text]] = choose(fake_nvml, torch_with_cuda, "all", CUDA_VISIBLE_DEVICES="")["problems"]
    assert "hides every GPU" in text


@pytest.mark.parametrize("devices", ["all", [0], [uuid_of(0)]])
def test_why_no_gpu_is_usable(fake_nvml: FakeNvml, tmp_path: Path, devices: Any) -> None:
    cpu_only = str(fake_torch(tmp_path, cuda=None))
    [[key, text]] = choose(fake_nvml, cpu_only, devices)["problems"]
    assert key == "devices"
    assert "built without CUDA" in text
    [[_, text]] = choose(fake_nvml, cpu_only, devices, **fake_nvml.without_driver)["problems"]
    assert "no NVIDIA driver" in text


@pytest.mark.parametrize(
    "devices", ["cpu:0", "cpu:", "cpu", "cpu:-1", "cpu:two", "gpu", "cuda:0", []]
)
def test_what_names_no_device_is_refused(devices: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        devices_for(RunConfig(devices=devices))
    assert [key for key, _ in caught.value.problems] == ["devices"]


def test_each_gpu_is_visible_once_and_cpu_hides_all() -> None:
    first = Device(kind="cuda", index=0, uuid=uuid_of(0))
    second = Device(kind="cuda", index=1, uuid=uuid_of(1))
    assert visible_devices([second, first, second]) == f"{uuid_of(1)},{uuid_of(0)}"
    assert visible_devices([Device(kind="cpu", index=0)]) == ""


def test_the_build_of_the_installed_torch_is_read_right() -> None:
    import torch

    assert torch_has_cuda() == (torch.version.cuda is not None)
