"""The GPUs of this host, according to NVML and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import json

import pytest

from distrain.runners.system.devices import Device, torch_has_cuda, visible_devices
from tests.support.fake_nvml import (
    LOST,
    NO_DRIVER,
    FakeNvml,
    gpu,
    mig_instances,
    uuid_of,
)

LISTING = """
import json
from distrain.runners.system.devices import gpus
print(json.dumps([[device.index, device.uuid] for device in gpus()]))
"""


def listed(machine: FakeNvml, **environment: str) -> list[int]:
    return [index for index, _ in json.loads(machine.python(LISTING, **environment))]


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
def test_cuda_visible_devices_is_interpreted_as_by_cuda(
    fake_nvml: FakeNvml, value: str, seen: list[int]
) -> None:
    fake_nvml.has(3)
    assert listed(fake_nvml, CUDA_VISIBLE_DEVICES=value) == seen


def test_a_gpu_in_mig_mode_is_listed_by_its_instances(fake_nvml: FakeNvml) -> None:
    instances = mig_instances(1, 2)
    fake_nvml.has([gpu(0), gpu(1, mig=1, instances=instances)])
    there = json.loads(fake_nvml.python(LISTING))
    assert there == [[0, uuid_of(0)], *([1, part["uuid"]] for part in instances.values())]


def test_each_gpu_is_visible_once_and_cpu_runs_hide_all() -> None:
    first = Device(kind="cuda", index=0, uuid=uuid_of(0))
    second = Device(kind="cuda", index=1, uuid=uuid_of(1))
    assert visible_devices([second, first, second]) == f"{uuid_of(1)},{uuid_of(0)}"
    assert visible_devices([Device(kind="cpu", index=0)]) == ""


def test_the_cuda_version_of_the_installed_torch_is_correct() -> None:
    import torch

    assert torch_has_cuda() == (torch.version.cuda is not None)
