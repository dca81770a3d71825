"""Samples of GPUs with a fake driver, of this host, and of real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from distrain.runners.system.telemetry import GpuSampler, RankSampler, sample_host
from tests.support import ROOT
from tests.support.fake_nvml import (
    LOST,
    MEBIBYTE,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeNvml,
    gpu,
    mig_instances,
    uuid_of,
)

SAMPLES = """
import json, os, sys
from distrain.runners.protocol.events import as_dict
from distrain.runners.system.telemetry import GpuSampler
wanted, later = json.loads({asked!r})
with GpuSampler(wanted) as sampler:
    print(json.dumps([as_dict(sample) for sample in sampler.sample()]))
    for text in later:
        open(os.environ["FAKE_NVML"], "w").write(text)
        print(json.dumps([as_dict(sample) for sample in sampler.sample()]))
"""

FIGURES = (
    "utilisation",
    "memory_used",
    "memory_total",
    "power",
    "temperature",
    "sm_clock",
    "memory_clock",
    "energy",
)


def samples(
    machine: FakeNvml, wanted: list[str] | None = None, later: tuple[str, ...] = (), **env: str
) -> list[list[dict[str, Any]]]:
    """Return a list of samples, and one more after each later state of the machine."""
    printed = machine.python(SAMPLES.format(asked=json.dumps([wanted, later])), **env)
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_sample_has_every_figure_in_its_unit(fake_nvml: FakeNvml, count: int) -> None:
    fake_nvml.has(count)
    [found] = samples(fake_nvml)
    assert len(found) == count
    for index, sample in enumerate(found):
        assert abs(sample.pop("time") - time.time()) < 60
        assert sample == {
            "gpu": index,
            "uuid": uuid_of(index),
            "name": "NVIDIA Fake 80GB",
            "utilisation": 50 + index,
            "memory_used": (1000 + index) * MEBIBYTE,
            "memory_total": 81920 * MEBIBYTE,
            "power": pytest.approx(250.5 + index / 1000),
            "temperature": 60 + index,
            "sm_clock": 1410,
            "memory_clock": 1593,
            "energy": pytest.approx(5000 + index / 1000),
            "processes": {str(4711 + index): 900 * MEBIBYTE},
        }


def test_only_the_gpus_asked_for_are_sampled(fake_nvml: FakeNvml) -> None:
    fake_nvml.has(4)
    [found] = samples(fake_nvml, wanted=[uuid_of(3), uuid_of(1)])
    assert [sample["gpu"] for sample in found] == [1, 3]


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION])
def test_an_unsupported_figure_is_none_and_the_others_stay(fake_nvml: FakeNvml, error: str) -> None:
    lacking: list[set[str]] = [{name} for name in FIGURES if "memory_" not in name]
    lacking += [{"memory_clock"}, {"memory_total", "memory_used", "memory_used_v1"}, {"processes"}]
    fake_nvml.has([gpu(i, **dict.fromkeys(names, error)) for i, names in enumerate(lacking)])
    [found] = samples(fake_nvml)
    for sample, names in zip(found, lacking, strict=True):
        assert {name for name in FIGURES if sample[name] is None} == names & set(FIGURES)
        assert bool(sample["processes"]) == ("processes" not in names)


def test_old_and_new_drivers_give_the_same_figures(fake_nvml: FakeNvml) -> None:
    fake_nvml.has([gpu(0, memory_used=None), gpu(1, temperature=None, temperature_v1=44)])
    [[old, new]] = samples(fake_nvml)
    assert old["memory_used"] == 1500 * MEBIBYTE
    assert new["temperature"] == 44


def test_a_mistake_of_the_driver_is_not_too_large_for_a_record(fake_nvml: FakeNvml) -> None:
    fake_nvml.has([gpu(0, memory_used=2**64 - 1, memory_total=2**64 - 1)])
    [[sample]] = samples(fake_nvml)
    # A float: SQLite has no integer so large.
    assert isinstance(sample["memory_used"], float)
    assert isinstance(sample["memory_total"], float)


def test_processes_are_listed_even_with_unknown_memory(fake_nvml: FakeNvml) -> None:
    fake_nvml.has([gpu(0, processes="11:1024 12:-1"), gpu(1, processes="")])
    [[busy, idle]] = samples(fake_nvml)
    assert busy["processes"] == {"11": 1024, "12": None}
    assert idle["processes"] == {}


def test_a_lost_gpu_stays_none_and_the_others_continue(fake_nvml: FakeNvml) -> None:
    fake_nvml.has(2)
    lost = fake_nvml.text([gpu(0, lost=LOST), gpu(1, utilisation=99)])
    back = fake_nvml.text(2)
    before, during, after = samples(fake_nvml, later=(lost, back))
    assert before[0]["utilisation"] == 50
    for first, second in (during, after):
        assert first["uuid"] == uuid_of(0)
        assert [first[name] for name in FIGURES] == [None] * len(FIGURES)
        assert first["processes"] == {}
        assert second["power"] is not None
    assert during[1]["utilisation"] == 99


def test_a_mig_instance_reports_only_its_memory(fake_nvml: FakeNvml) -> None:
    fake_nvml.has([gpu(0, mig=1, instances=mig_instances(0, 2))])
    [found] = samples(fake_nvml)
    assert [sample["uuid"][:4] for sample in found] == ["MIG-", "MIG-"]
    assert found[0]["memory_used"] == 12 * MEBIBYTE
    assert [found[0][name] for name in FIGURES if "memory_" not in name] == [None] * 5


def test_without_a_driver_samples_are_empty(fake_nvml: FakeNvml) -> None:
    assert samples(fake_nvml, **fake_nvml.without_driver) == [[]]


def test_a_closed_sampler_is_empty() -> None:
    sampler = GpuSampler()
    sampler.close()
    assert sampler.sample() == []


def test_a_sampler_that_is_never_closed_does_not_wait_for_a_driver_that_does_not_answer(
    fake_nvml: FakeNvml,
) -> None:
    fake_nvml.has(1)
    printed = fake_nvml.python("""
import pynvml
from distrain.runners.system.telemetry import GpuSampler
sampler = GpuSampler()
pynvml.nvmlShutdown = lambda: print("waits")
del sampler
""")
    assert not printed


def test_the_host_is_in_range() -> None:
    sample_host()
    deadline = time.process_time() + 0.2
    while time.process_time() < deadline:
        pass
    sample = sample_host()
    assert 0 < sample.cpu <= 100
    assert 0 < sample.memory_used < sample.memory_total == psutil.virtual_memory().total
    assert sample.load >= 0


PARENT = """
import subprocess, sys, threading, time
children = []
def start():
    children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
    time.sleep(60)
start_from = sys.argv[1]
if start_from == "thread":
    threading.Thread(target=start, daemon=True).start()
    while not children:
        time.sleep(0.01)
else:
    children.append(subprocess.Popen([sys.executable, "-c", {grandparent!r}]))
print("ready", flush=True)
time.sleep(60)
"""
GRANDPARENT = """
import subprocess, sys
print("child", flush=True)
last = "import time; print('grandchild', flush=True); time.sleep(60)"
subprocess.run([sys.executable, "-c", last])
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def start(
    started: list[subprocess.Popen[str]], code: str, *arguments: str
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    started.append(process)
    return process


BUSY = "import time; time.sleep(0.7); print('ready', flush=True)\nwhile True: pass"
IDLE = "print('ready', flush=True)\nimport time; time.sleep(60)"


def wait_for(process: subprocess.Popen[str], *words: str) -> None:
    assert process.stdout is not None
    missing = set(words)
    while missing:
        missing.discard(process.stdout.readline().strip())


def test_cpu_of_a_rank_is_its_use_since_the_last_sample(
    started: list[subprocess.Popen[str]],
) -> None:
    busy, idle = start(started, BUSY), start(started, IDLE)
    wait_for(busy, "ready")
    wait_for(idle, "ready")
    time.sleep(0.5)
    pids = {3: busy.pid, 5: idle.pid}
    sampler = RankSampler()
    sampler.sample(pids)
    before = psutil.Process(busy.pid).cpu_times().user
    began = time.time()
    time.sleep(1.0)
    first, second = sampler.sample(pids)
    expected = 100 * (psutil.Process(busy.pid).cpu_times().user - before) / (time.time() - began)
    assert (first.rank, second.rank) == (3, 5)
    assert first.cpu == pytest.approx(expected, abs=15)
    assert second.cpu < 15
    assert first.rss > MEBIBYTE


@pytest.mark.parametrize("start_from", ["thread", "child"])
def test_descendants_count_with_their_rank(
    started: list[subprocess.Popen[str]], start_from: str
) -> None:
    parent = start(started, PARENT.format(grandparent=GRANDPARENT), start_from)
    wait_for(parent, "ready", *(["child", "grandchild"] if start_from == "child" else []))
    [sample] = RankSampler().sample({0: parent.pid})
    alone = psutil.Process(parent.pid).memory_full_info().uss
    assert sample.processes == (3 if start_from == "child" else 2)
    assert sample.rss > alone


MAPPING = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[::4096])
kept = bytearray(b"x") * (16 << 20)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_pages_of_mapped_files_are_not_the_memory_of_a_rank(
    started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    data = tmp_path / "tokens.bin"
    data.write_bytes(bytes(64 * MEBIBYTE))
    process = start(started, MAPPING, str(data))
    wait_for(process, "ready")
    assert psutil.Process(process.pid).memory_info().rss > 80 * MEBIBYTE
    [sample] = RankSampler().sample({0: process.pid})
    assert 16 * MEBIBYTE < sample.rss < 48 * MEBIBYTE


def test_ended_ranks_are_left_out_and_new_ones_are_sampled(
    started: list[subprocess.Popen[str]],
) -> None:
    first, second = start(started, IDLE), start(started, IDLE)
    wait_for(first, "ready")
    wait_for(second, "ready")
    sampler = RankSampler()
    assert [sample.rank for sample in sampler.sample({0: first.pid})] == [0]
    first.kill()
    while psutil.Process(first.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    unreaped = sampler.sample({0: first.pid, 1: second.pid})
    first.wait()
    reaped = sampler.sample({0: first.pid, 1: second.pid})
    assert [sample.rank for sample in unreaped] == [1]
    assert [sample.rank for sample in reaped] == [1]


def test_no_sampler_needs_torch() -> None:
    code = (
        "import sys, distrain.runners.system.telemetry, distrain.runners.config.presets\n"
        "print('torch' in sys.modules)"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "False"
