"""Who has which devices, what stands in a run's way, and what becomes of a dead run's claim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_nvml import FakeNvml, gpu, uuid_of

from runners.claims import Claim, Holder, folder, in_the_way, who_has
from runners.config import RunConfig
from runners.devices import Device
from runners.errors import DistrainError
from runners.plan import Plan, cores, make_plan

Start = Callable[..., subprocess.Popen[str]]

HOLD = """
import sys
from runners.claims import Claim, Holder
holder = Holder(Claim(run_id="other", dir="", cores={cores}, gpus={gpus}))
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
from runners.claims import Claim, Holder
holder = Holder(Claim(run_id=sys.argv[1], dir="", gpus={"GPU-x": 0}, waiting=True))
print("here", flush=True)
sys.stdin.readline()
print("waits" if holder.take() else "has it", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(tmp_path / "queue"))
    return tmp_path / "queue"


@pytest.fixture
def start() -> Iterator[Start]:
    """Run code in a process that goes on until the test ends; returns after its first line."""
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


def claim(number: int, waiting: bool = False, **taken: Any) -> Claim:
    names = {1: "one", 2: "two"}
    return Claim(
        run_id=f"r{number}",
        name=names.get(number, ""),
        dir="",
        place=number,
        waiting=waiting,
        **taken,
    )


def on_cpu(threads: int) -> Plan:
    config = RunConfig(strategy="single").with_changes({"train.threads": threads})
    return make_plan(config, [Device(kind="cpu", index=0)])


# --- what stands in the way --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "reasons"),
    [
        ([], []),
        ([claim(1, gpus={"a": 0})], ["GPU 0: run r1 (one) has it"]),
        ([claim(1, gpus={"c": 2}), claim(2, cores=64)], []),
        (
            [claim(1, gpus={"a": 0, "b": 1}), claim(2, waiting=True, gpus={"b": 1})],
            [
                "GPU 0: run r1 (one) has it",
                "GPU 1: run r1 (one) has it",
                "GPU 1: run r2 (two) is before it in the queue",
            ],
        ),
        ([claim(4, waiting=True, gpus={"a": 0})], []),
        ([claim(4, gpus={"a": 0})], ["GPU 0: run r4 has it"]),
    ],
)
def test_a_gpu_is_busy_by_a_run_that_has_it_or_waited_before(
    others: list[Claim], reasons: list[str]
) -> None:
    wanted = claim(3, waiting=True, gpus={"a": 0, "b": 1})
    assert in_the_way(wanted, others, {}) == reasons


def test_a_gpu_is_busy_by_a_program_that_is_no_run() -> None:
    wanted = claim(3, waiting=True, gpus={"a": 0, "b": 1})
    found = {"b": ["process 4711 (python of ann, not a run of yours)"], "c": ["process 1"]}
    assert in_the_way(wanted, [], found) == [
        "GPU 1: process 4711 (python of ann, not a run of yours) has it"
    ]


@pytest.mark.parametrize(
    ("wants", "others", "reasons"),
    [
        (2, [], []),
        (2, [claim(1, cores=2)], []),
        (
            3,
            [claim(1, cores=2)],
            ["CPU: run r1 (one) has 2 cores, this run wants 3, and there are 4"],
        ),
        (
            4,
            [claim(1, cores=1)],
            ["CPU: run r1 (one) has 1 core, this run wants 4, and there are 4"],
        ),
        (
            2,
            [claim(2, waiting=True, cores=2), claim(1, cores=2)],
            [
                "CPU: run r1 (one) has 2 cores, this run wants 2, and there are 4",
                "CPU: run r2 (two) is before it in the queue",
            ],
        ),
        (2, [claim(4, waiting=True, cores=4), claim(1, cores=2)], []),
        (4, [claim(1, gpus={"a": 0})], []),
    ],
)
def test_cpu_runs_start_while_there_are_cores(
    wants: int, others: list[Claim], reasons: list[str]
) -> None:
    assert in_the_way(claim(3, waiting=True, cores=wants), others, {}, there=4) == reasons


def test_a_run_that_wants_more_cores_than_there_are_starts_alone() -> None:
    greedy = claim(3, waiting=True, cores=64)
    assert in_the_way(greedy, [], {}, there=4) == []
    assert in_the_way(greedy, [claim(1, cores=1)], {}, there=4)
    assert in_the_way(claim(4, waiting=True, cores=1), [greedy], {}, there=4)


def test_where_a_run_of_another_folder_is_gets_told() -> None:
    def of(folder: str, number: int) -> Claim:
        return msgspec.structs.replace(claim(number, gpus={"a": 0}), dir=f"{folder}/r{number}")

    assert in_the_way(of("/here", 3), [of("/here", 1)], {}) == ["GPU 0: run r1 (one) has it"]
    found = in_the_way(of("/here", 3), [of("/there", 1)], {})
    assert found == ["GPU 0: run r1 (one) in /there has it"]
    roundabout = in_the_way(of("/here/../here", 3), [of("/here", 1)], {})
    assert roundabout == ["GPU 0: run r1 (one) has it"]


def test_a_long_queue_is_told_in_short() -> None:
    others = [claim(number, waiting=True, cores=4) for number in range(1, 7)]
    (reason,) = in_the_way(claim(9, waiting=True, cores=1), others, {}, there=4)
    assert reason == "CPU: run r1 (one), run r2 (two) and 4 more are before it in the queue"


# --- between processes -------------------------------------------------------------------------


def test_a_claim_is_gone_with_its_process_however_that_ended(start: Start, place: Path) -> None:
    other = start(HOLD.format(cores=cores(), gpus={}))
    with Holder(Claim(run_id="mine", dir="", cores=1, waiting=True)) as mine:
        (reason,) = mine.take()
        assert "CPU: run other has" in reason
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert mine.take() == []
        assert [path.name for path in (place / "claims").iterdir()] == ["mine.json"]
    assert not list((place / "claims").iterdir())


def test_of_several_that_look_at_once_one_has_it(start: Start) -> None:
    rush = [start(RUSH, f"run-{number}") for number in range(4)]
    for process in rush:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.stdout.readline().strip() for process in rush if process.stdout]
    assert answers == ["has it", "waits", "waits", "waits"]


def test_a_viewer_can_ask_who_has_the_devices_of_a_plan(start: Start) -> None:
    here = Path("/runs")
    assert who_has(on_cpu(cores()), here) == []
    start(HOLD.format(cores=1, gpus={}))
    (reason,) = who_has(on_cpu(cores()), here)
    assert reason.startswith("CPU: run other has 1 core, ")


def test_others_must_not_be_able_to_write_to_the_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder().stat().st_mode & 0o777 == 0o700
    folder().chmod(0o777)
    with pytest.raises(DistrainError, match="only you can write to") as refused:
        folder()
    assert "DISTRAIN_CLAIMS_DIR" in str(refused.value)
    link = place.with_name("link")
    link.symlink_to(place)
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(link))
    with pytest.raises(DistrainError, match="only you can write to"):
        folder()


def test_a_folder_that_cannot_be_made_is_one_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(place / "no" / "such"))
    with pytest.raises(DistrainError, match="No such file or directory; name another folder"):
        folder()


# --- GPUs --------------------------------------------------------------------------------------

LOOK = """
import json, os
from pathlib import Path
from runners.claims import Claim, Holder
claim = Claim(run_id="mine", dir="", gpus={gpus}, waiting=True)
with Holder(claim) as mine:
    print(json.dumps(mine.take()))
    for text in {later}:
        Path(os.environ["FAKE_NVML"]).write_text(text)
        print(json.dumps(mine.take()))
"""


def looks(machine: FakeNvml, gpus: int = 1, later: tuple[str, ...] = ()) -> list[list[str]]:
    """What is in the way of a run on so many GPUs, at first and in each later state."""
    wanted = {uuid_of(index): index for index in range(gpus)}
    printed = machine.python(LOOK.format(gpus=wanted, later=later))
    return [json.loads(line) for line in printed.splitlines()]


@pytest.fixture
def program() -> Iterator[int]:
    """The pid of a program that is no run."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def test_a_program_on_a_gpu_is_named_until_it_leaves(fake_nvml: FakeNvml, program: int) -> None:
    idle = gpu(0, processes="")
    fake_nvml.has([idle, gpu(1, processes=f"{program}:1024")])
    freed = fake_nvml.text([idle, gpu(1, processes="")])
    ((reason,), nothing) = looks(fake_nvml, gpus=2, later=(freed,))
    assert reason.startswith(f"GPU 1: process {program} (sleep of ")
    assert reason.endswith(", not a run of yours) has it")
    assert nothing == []


def test_a_program_on_a_gpu_that_the_run_does_not_want_is_its_own_business(
    fake_nvml: FakeNvml, program: int
) -> None:
    fake_nvml.has([gpu(0, processes=""), gpu(1, processes=f"{program}:1024")])
    assert looks(fake_nvml, gpus=1) == [[]]


def test_a_process_that_cannot_be_seen_counts_all_the_same(fake_nvml: FakeNvml) -> None:
    fake_nvml.has([gpu(0, processes=f"{2**22 + 1}:-1")])  # no pid is that high
    ((reason,),) = looks(fake_nvml)
    assert reason == f"GPU 0: process {2**22 + 1} (which cannot be looked at from here) has it"


def test_the_ranks_of_another_run_are_told_as_that_run(
    fake_nvml: FakeNvml, start: Start, tmp_path: Path
) -> None:
    run = start(SPAWN + HOLD.format(cores=0, gpus={uuid_of(0): 0}), str(tmp_path / "rank"))
    rank = int((tmp_path / "rank").read_text())
    fake_nvml.has([gpu(0, processes=f"{rank}:1024")])
    try:
        assert looks(fake_nvml) == [["GPU 0: run other has it"]]
        run.kill()
        run.wait()
        ((reason,),) = looks(fake_nvml)  # it is still there, and now it is nobody's
        assert f"process {rank} (sleep" in reason
    finally:
        os.kill(rank, signal.SIGKILL)


def test_a_gpu_is_known_by_its_uuid_whatever_its_number(fake_nvml: FakeNvml, start: Start) -> None:
    fake_nvml.has([gpu(0, processes=""), gpu(1, processes="")])
    start(HOLD.format(cores=0, gpus={uuid_of(1): 0}))
    assert looks(fake_nvml, gpus=1) == [[]]
    assert looks(fake_nvml, gpus=2) == [["GPU 1: run other has it"]]
