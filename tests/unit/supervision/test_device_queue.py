"""Which runs use which devices, why a run waits, and what a dead run leaves."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.supervision import device_queue, queue_order
from distrain.runners.supervision.device_queue import (
    DeviceLease,
    QueueEntry,
    find_obstacles,
    obstacles_for,
    queue_folder,
)
from distrain.runners.system.devices import Device
from distrain.runners.system.host import count_cores
from tests.support.fake_nvml import FakeNvml, gpu, uuid_of

Start = Callable[..., subprocess.Popen[str]]

HOLD = """
import sys
from distrain.runners.supervision.device_queue import DeviceLease, QueueEntry
lease = DeviceLease(QueueEntry(run_id="other", dir="", cores={cores}, gpus={gpus}))
print("held", flush=True)
sys.stdin.read()
"""

SPAWN = """
import subprocess, sys
from pathlib import Path
rank = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
Path(sys.argv[1]).write_text(str(rank.pid))
"""

RUSH = """
import sys
from distrain.runners.supervision.device_queue import DeviceLease, QueueEntry
lease = DeviceLease(QueueEntry(run_id=sys.argv[1], dir="", gpus={"GPU-x": 0}, waiting=True))
print("here", flush=True)
sys.stdin.readline()
print("waits" if lease.acquire() else "acquired", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "queue"))
    return tmp_path / "queue"


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that runs code in a process until the test ends.

    It returns after the first line of output.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(code: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def entry(number: int, waiting: bool = False, **taken: Any) -> QueueEntry:
    names = {1: "one", 2: "two"}
    return QueueEntry(
        run_id=f"r{number}",
        name=names.get(number, ""),
        dir="",
        position=number,
        waiting=waiting,
        **taken,
    )


def on_cpu(threads: int) -> Plan:
    config = RunConfig(strategy="single").with_changes({"train.threads": threads})
    return plan_here(config, [Device(kind="cpu", index=0)])


# --- obstacles --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "reasons"),
    [
        ([], []),
        ([entry(1, gpus={"a": 0})], ["GPU 0: in use by run r1 (one)"]),
        ([entry(1, gpus={"c": 2}), entry(2, cores=64)], []),
        (
            [entry(1, gpus={"a": 0, "b": 1}), entry(2, waiting=True, gpus={"b": 1})],
            [
                "GPU 0: in use by run r1 (one)",
                "GPU 1: in use by run r1 (one)",
                "GPU 1: run r2 (two) is ahead in the queue",
            ],
        ),
        ([entry(4, waiting=True, gpus={"a": 0})], []),
        ([entry(4, gpus={"a": 0})], ["GPU 0: in use by run r4"]),
    ],
)
def test_a_gpu_is_busy_with_a_run_that_uses_it_or_is_ahead(
    others: list[QueueEntry], reasons: list[str]
) -> None:
    wanted = entry(3, waiting=True, gpus={"a": 0, "b": 1})
    assert obstacles_for(wanted, others, {}) == reasons


def test_a_gpu_is_busy_with_a_program_that_is_not_a_run() -> None:
    wanted = entry(3, waiting=True, gpus={"a": 0, "b": 1})
    found = {"b": ["process 4711 (python of ann, not one of your runs)"], "c": ["process 1"]}
    assert obstacles_for(wanted, [], found) == [
        "GPU 1: in use by process 4711 (python of ann, not one of your runs)"
    ]


@pytest.mark.parametrize(
    ("wants", "others", "reasons"),
    [
        (2, [], []),
        (2, [entry(1, cores=2)], []),
        (
            3,
            [entry(1, cores=2)],
            ["CPU: 2 cores in use by run r1 (one); needs 3 of 4"],
        ),
        (
            4,
            [entry(1, cores=1)],
            ["CPU: 1 core in use by run r1 (one); needs 4 of 4"],
        ),
        (
            2,
            [entry(2, waiting=True, cores=2), entry(1, cores=2)],
            [
                "CPU: 2 cores in use by run r1 (one); needs 2 of 4",
                "CPU: run r2 (two) is ahead in the queue",
            ],
        ),
        (2, [entry(4, waiting=True, cores=4), entry(1, cores=2)], []),
        (4, [entry(1, gpus={"a": 0})], []),
    ],
)
def test_cpu_runs_start_while_there_are_cores(
    wants: int, others: list[QueueEntry], reasons: list[str]
) -> None:
    assert obstacles_for(entry(3, waiting=True, cores=wants), others, {}, host_cores=4) == reasons


def test_a_run_that_needs_more_cores_than_the_host_has_runs_alone() -> None:
    large = entry(3, waiting=True, cores=64)
    assert obstacles_for(large, [], {}, host_cores=4) == []
    assert obstacles_for(large, [entry(1, cores=1)], {}, host_cores=4)
    assert obstacles_for(entry(4, waiting=True, cores=1), [large], {}, host_cores=4)


def test_a_suspended_run_does_not_keep_devices_from_those_behind_it(start: Start) -> None:
    first = start(RUSH, "first")
    behind = QueueEntry(run_id="second", dir="", gpus={"GPU-x": 0}, waiting=True)
    with DeviceLease(behind) as lease:
        assert lease.acquire() == ["GPU 0: run first is ahead in the queue"]
        first.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        named = queue_order.read_queue()[0]
        assert named.entry.run_id == "first"
        assert f"kill -CONT {first.pid}" in named.waiting_for[0]
        assert lease.acquire() == []
        first.send_signal(signal.SIGCONT)
        assert first.communicate("\n")[0] == "waits\n"


def test_a_run_of_another_folder_is_named_with_its_folder() -> None:
    def of(folder: str, number: int) -> QueueEntry:
        return msgspec.structs.replace(entry(number, gpus={"a": 0}), dir=f"{folder}/r{number}")

    assert obstacles_for(of("/here", 3), [of("/here", 1)], {}) == ["GPU 0: in use by run r1 (one)"]
    found = obstacles_for(of("/here", 3), [of("/there", 1)], {})
    assert found == ["GPU 0: in use by run r1 (one) in /there"]
    roundabout = obstacles_for(of("/here/../here", 3), [of("/here", 1)], {})
    assert roundabout == ["GPU 0: in use by run r1 (one)"]


def test_a_long_queue_is_abbreviated() -> None:
    others = [entry(number, waiting=True, cores=4) for number in range(1, 7)]
    (reason,) = obstacles_for(entry(9, waiting=True, cores=1), others, {}, host_cores=4)
    assert reason == "CPU: run r1 (one), run r2 (two) and 4 more are ahead in the queue"


# --- between processes -------------------------------------------------------------------------


def test_an_entry_is_removed_with_its_process(start: Start, place: Path) -> None:
    other = start(HOLD.format(cores=count_cores(), gpus={}))
    with DeviceLease(QueueEntry(run_id="mine", dir="", cores=1, waiting=True)) as mine:
        (reason,) = mine.acquire()
        assert " in use by run other" in reason
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert mine.acquire() == []
        assert [path.name for path in (place / "claims").iterdir()] == ["mine.json"]
    assert not list((place / "claims").iterdir())


@pytest.mark.parametrize("deleted", ["the entry", "the folder"])
def test_an_entry_that_is_deleted_is_written_again(deleted: str, start: Start, place: Path) -> None:
    held = QueueEntry(run_id="mine", dir="", cores=count_cores())
    with DeviceLease(held) as mine:
        if deleted == "the entry":
            (place / "claims" / "mine.json").unlink()
        else:
            shutil.rmtree(place)
        mine.refresh()
        (reason,) = find_obstacles(on_cpu(1), Path("/runs"))
        assert " in use by run mine" in reason
    assert not list((place / "claims").iterdir())


def test_a_run_waits_while_the_folder_of_the_queue_cannot_be_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DeviceLease(QueueEntry(run_id="mine", dir="", cores=1, waiting=True)) as mine:
        shutil.rmtree(place)
        place.write_text("not a folder")
        (reason,) = mine.acquire()
        assert "cannot be used" in reason
        place.unlink()
        (reason,) = mine.acquire()  # what uses its devices may not be in the queue again
        assert "were deleted" in reason
        monkeypatch.setattr(device_queue, "RETURN_S", 0)
        assert mine.acquire() == []


def test_a_run_waits_while_its_entry_cannot_be_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with DeviceLease(QueueEntry(run_id="mine", dir="", cores=1, waiting=True)) as mine:
        with monkeypatch.context() as full_disk:
            full_disk.setattr(device_queue, "write_entry", refuse)
            (reason,) = mine.acquire()
        assert f"{place / 'claims'} cannot be used: No space left on device" in reason
        assert mine.acquire() == []


def test_only_one_of_several_simultaneous_runs_gets_a_gpu(start: Start) -> None:
    rush = [start(RUSH, f"run-{number}") for number in range(4)]
    for process in rush:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.stdout.readline().strip() for process in rush if process.stdout]
    assert answers == ["acquired", "waits", "waits", "waits"]


def test_viewers_can_ask_for_the_obstacles_of_a_plan(start: Start) -> None:
    here = Path("/runs")
    assert find_obstacles(on_cpu(count_cores()), here) == []
    start(HOLD.format(cores=1, gpus={}))
    (reason,) = find_obstacles(on_cpu(count_cores()), here)
    assert reason.startswith("CPU: 1 core in use by run other; ")


def test_a_folder_that_others_can_write_to_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert queue_folder().stat().st_mode & 0o777 == 0o700
    queue_folder().chmod(0o777)
    with pytest.raises(DistrainError, match="only you can write to") as refused:
        queue_folder()
    assert "DISTRAIN_CLAIMS_DIR" in str(refused.value)
    link = place.with_name("link")
    link.symlink_to(place)
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(link))
    with pytest.raises(DistrainError, match="only you can write to"):
        queue_folder()


def test_a_folder_that_cannot_be_created_is_one_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(place / "no" / "such"))
    with pytest.raises(DistrainError, match="No such file or directory; choose another folder"):
        queue_folder()


# --- GPUs --------------------------------------------------------------------------------------

LOOK = """
import json, os
from pathlib import Path
from distrain.runners.supervision.device_queue import DeviceLease, QueueEntry
entry = QueueEntry(run_id="mine", dir="", gpus={gpus}, waiting=True)
with DeviceLease(entry) as mine:
    print(json.dumps(mine.acquire()))
    for text in {later}:
        Path(os.environ["FAKE_NVML"]).write_text(text)
        print(json.dumps(mine.acquire()))
"""


def obstacles_on(machine: FakeNvml, gpus: int = 1, later: tuple[str, ...] = ()) -> list[list[str]]:
    """Return the obstacles of a run on so many GPUs, at first and in each later state."""
    wanted = {uuid_of(index): index for index in range(gpus)}
    printed = machine.python(LOOK.format(gpus=wanted, later=later))
    return [json.loads(line) for line in printed.splitlines()]


@pytest.fixture
def program() -> Iterator[int]:
    """Yield the pid of a program that is not a run."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def test_a_program_on_a_gpu_is_named_until_it_leaves(fake_nvml: FakeNvml, program: int) -> None:
    idle = gpu(0, processes="")
    fake_nvml.has([idle, gpu(1, processes=f"{program}:1024")])
    freed = fake_nvml.text([idle, gpu(1, processes="")])
    ((reason,), nothing) = obstacles_on(fake_nvml, gpus=2, later=(freed,))
    assert reason.startswith(f"GPU 1: in use by process {program} (sleep of ")
    assert reason.endswith(", not one of your runs)")
    assert nothing == []


def test_a_program_on_another_gpu_does_not_matter(fake_nvml: FakeNvml, program: int) -> None:
    fake_nvml.has([gpu(0, processes=""), gpu(1, processes=f"{program}:1024")])
    assert obstacles_on(fake_nvml, gpus=1) == [[]]


def test_a_process_that_is_not_visible_counts(fake_nvml: FakeNvml) -> None:
    fake_nvml.has([gpu(0, processes=f"{2**22 + 1}:-1")])  # no pid is that high
    ((reason,),) = obstacles_on(fake_nvml)
    assert reason == f"GPU 0: in use by process {2**22 + 1} (not visible from here)"


def test_the_ranks_of_another_run_are_named_as_that_run(
    fake_nvml: FakeNvml, start: Start, tmp_path: Path
) -> None:
    run = start(SPAWN + HOLD.format(cores=0, gpus={uuid_of(0): 0}), str(tmp_path / "rank"))
    rank = int((tmp_path / "rank").read_text())
    fake_nvml.has([gpu(0, processes=f"{rank}:1024")])
    try:
        assert obstacles_on(fake_nvml) == [["GPU 0: in use by run other"]]
        run.kill()
        run.wait()
        ((reason,),) = obstacles_on(
            fake_nvml
        )  # the process still exists, but no longer belongs to a run
        assert f"process {rank} (sleep" in reason
    finally:
        os.kill(rank, signal.SIGKILL)


def test_a_gpu_is_identified_by_its_uuid(fake_nvml: FakeNvml, start: Start) -> None:
    fake_nvml.has([gpu(0, processes=""), gpu(1, processes="")])
    start(HOLD.format(cores=0, gpus={uuid_of(1): 0}))
    assert obstacles_on(fake_nvml, gpus=1) == [[]]
    assert obstacles_on(fake_nvml, gpus=2) == [["GPU 1: in use by run other"]]


def test_a_file_system_without_locks_is_named_with_the_variable_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(DistrainError, match=r"claims cannot be used: No locks .*DISTRAIN_CLAIMS"):
        queue_order.read_queue()


def test_a_process_that_keeps_the_queue_locked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_queue, "LOCK_S", 0.1)
    folder = device_queue.queue_folder()
    code = (
        "import fcntl, os, sys, time; lock = os.open(sys.argv[1], os.O_RDONLY);"
        "fcntl.flock(lock, fcntl.LOCK_EX); print('locked', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == b"locked\n"
            expected = f"process {holder.pid} holds the lock of the queue {folder}"
            with pytest.raises(DistrainError, match=re.escape(expected)):
                queue_order.read_queue()
        finally:
            holder.kill()
