"""Which devices a run uses, and the message if they are not available."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.config.device_choice import choose_devices
from distrain.runners.config.planning import host_for
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from tests.support.fake_nvml import FakeNvml, fake_torch, gpu, mig_instances, uuid_of

CHOICE = """
import json, sys
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.device_choice import choose_devices
from distrain.runners.config.planning import host_for
from distrain.runners.system.devices import visible_devices
from distrain.runners.errors import ConfigError
choice, strategy = json.loads({asked!r})
try:
    config = RunConfig(devices=choice, strategy=strategy)
    chosen = choose_devices(config, host_for(config))
    answer = [[device.kind, device.index, device.uuid] for device in chosen]
    print(json.dumps({{"chosen": answer, "visible": visible_devices(chosen)}}))
except ConfigError as error:
    print(json.dumps({{"problems": error.problems}}))
"""


@pytest.fixture
def torch_with_cuda(tmp_path: Path) -> str:
    return str(fake_torch(tmp_path))


def choose(
    machine: FakeNvml, torch: str, devices: Any, strategy: str = "ddp", **environment: str
) -> Any:
    code = CHOICE.format(asked=json.dumps([devices, strategy]))
    return json.loads(machine.python(code, PYTHONPATH=torch, **environment))


def test_a_run_uses_one_mig_instance(fake_nvml: FakeNvml, torch_with_cuda: str) -> None:
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
def test_auto_uses_all_gpus_and_single_uses_one(
    fake_nvml: FakeNvml, torch_with_cuda: str, strategy: str, indices: list[int]
) -> None:
    fake_nvml.has(2)
    answer = choose(fake_nvml, torch_with_cuda, "auto", strategy)
    assert answer["chosen"] == [["cuda", index, uuid_of(index)] for index in indices]
    assert answer["visible"] == ",".join(uuid_of(index) for index in indices)


@pytest.mark.parametrize(("strategy", "count"), [("ddp", 2), ("dp", 1), ("single", 1)])
def test_auto_uses_the_cpu_if_torch_has_no_cuda(
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
def test_devices_are_used_as_listed(
    fake_nvml: FakeNvml, torch_with_cuda: str, devices: Any, indices: list[int] | None
) -> None:
    fake_nvml.has(3)
    answer = choose(fake_nvml, torch_with_cuda, devices)
    if indices is None:
        assert answer["chosen"] == [["cpu", index, ""] for index in range(3)]
    else:
        assert answer["chosen"] == [["cuda", index, uuid_of(index)] for index in indices]
        assert answer["visible"] == ",".join(uuid_of(index) for index in dict.fromkeys(indices))


def test_every_missing_gpu_is_named_with_the_available_ones(
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


def test_a_gpu_that_the_user_has_hidden_is_reported_as_hidden(
    fake_nvml: FakeNvml, torch_with_cuda: str
) -> None:
    fake_nvml.has(2)
    [[_, text]] = choose(fake_nvml, torch_with_cuda, [0], CUDA_VISIBLE_DEVICES="1")["problems"]
    assert "CUDA_VISIBLE_DEVICES=1" in text
    [[_, text]] = choose(fake_nvml, torch_with_cuda, "all", CUDA_VISIBLE_DEVICES="")["problems"]
    assert "hides every GPU" in text


@pytest.mark.parametrize("devices", ["all", [0], [uuid_of(0)]])
def test_the_reason_why_no_gpu_is_usable_is_reported(
    fake_nvml: FakeNvml, tmp_path: Path, devices: Any
) -> None:
    cpu_only = str(fake_torch(tmp_path, cuda=None))
    [[key, text]] = choose(fake_nvml, cpu_only, devices)["problems"]
    assert key == "devices"
    assert "built without CUDA" in text
    [[_, text]] = choose(fake_nvml, cpu_only, devices, **fake_nvml.without_driver)["problems"]
    assert "no NVIDIA driver" in text


@pytest.mark.parametrize(
    "devices", ["cpu:0", "cpu:", "cpu", "cpu:-1", "cpu:two", "gpu", "cuda:0", []]
)
def test_text_that_names_no_device_is_refused(devices: Any) -> None:
    config = RunConfig(devices=devices)
    with pytest.raises(ConfigError) as caught:
        choose_devices(config, host_for(config))
    assert [key for key, _ in caught.value.problems] == ["devices"]
