"""When ranks make no progress: after which pause that is a stall, and which rank is absent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distrain.runners.protocol.events import Finished, Frame
from distrain.runners.records.stall import STOPPED, UNRESPONSIVE, Stall
from distrain.runners.supervision import stack_groups, stall_watch
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.stall_watch import StallWatch

STALL_S = 60.0
TORCH = "/venv/lib/python3.11/site-packages/torch"


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stall_watch, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def watch(*, is_script: bool = False) -> StallWatch:
    found = StallWatch(Evidence(world_size=2, is_script=is_script), STALL_S)
    for rank in (0, 1):
        found.record_phase(rank, "running" if is_script else "training")
    return found


@pytest.mark.parametrize(("step_s", "limit"), [(0.01, 5), (2.0, 20), (30.0, 300)])
def test_steps_are_judged_by_their_median(step_s: float, limit: float, clock: Clock) -> None:
    ranks = watch()
    for rank in (0, 1):
        for seconds in (step_s, step_s, 50 * step_s):
            ranks.record_step(rank, seconds)
    clock.now += limit - 0.1
    ranks.record_step(1, step_s)
    assert ranks.stalled() == []
    clock.now += 0.2
    assert ranks.stalled() == [0]


def test_before_the_first_step_the_limit_is_that_of_the_config(clock: Clock) -> None:
    ranks, script = watch(), watch(is_script=True)
    clock.now += STALL_S - 1
    assert ranks.stalled() == []
    clock.now += 2
    assert ranks.stalled() == [0, 1]
    assert script.stalled() == []  # it may never report a step


def test_an_evaluation_is_judged_by_the_last_one(clock: Clock) -> None:
    ranks = watch()
    ranks.record_phase(0, "evaluating")
    clock.now += 2
    ranks.record_phase(0, "training")
    ranks.record_step(0, 0.01)
    ranks.record_phase(0, "evaluating")
    clock.now += 19
    assert 0 not in ranks.stalled()
    clock.now += 2
    assert 0 in ranks.stalled()


def test_a_rank_that_has_ended_is_not_stalled(clock: Clock) -> None:
    evidence = Evidence(world_size=1)
    ranks = StallWatch(evidence, STALL_S)
    ranks.record_step(0, 0.1)
    clock.now += 1000
    assert ranks.stalled() == [0]
    evidence.finished[0] = Finished(time=1.0, rank=0, step=1)
    assert ranks.stalled() == []


@pytest.mark.parametrize(
    ("calls", "phase"),
    [
        ([(f"{TORCH}/_tensor.py", "backward"), (f"{TORCH}/autograd/__init__.py", "backward")],
         "backward"),
        ([(f"{TORCH}/utils/data/dataloader.py", "__next__"), ("/home/me/data.py", "load")], "data"),
        ([(f"{TORCH}/nn/modules/module.py", "_call_impl"), ("/home/me/net.py", "forward")],
         "forward"),
        ([(f"{TORCH}/distributed/distributed_c10d.py", "all_reduce")], "collective"),
        ([(f"{TORCH}/nn/modules/module.py", "_call_impl"),
          (f"{TORCH}/nn/parallel/distributed.py", "_pre_forward")], "collective"),
        ([("/src/distrain/runners/training/evaluation.py", "evaluate"),
          (f"{TORCH}/distributed/distributed_c10d.py", "all_reduce")], "collective"),
        ([("/src/distrain/runners/training/evaluation.py", "evaluate"),
          (f"{TORCH}/nn/modules/module.py", "_call_impl")], "evaluation"),
        ([(f"{TORCH}/serialization.py", "save")], "checkpoint"),
        ([("/home/me/train.py", "main")], ""),
    ],
)  # fmt: skip
def test_calls_tell_the_phase(calls: list[tuple[str, str]], phase: str) -> None:
    assert stack_groups.phase_of([Frame(file, 1, function) for file, function in calls]) == phase


def test_the_users_call_is_the_innermost_one_of_no_library() -> None:
    calls = [("/me/train.py", "main"), ("/me/net.py", "forward"), (f"{TORCH}/nn/x.py", "relu")]
    frames = [Frame(file, line, function) for line, (file, function) in enumerate(calls)]
    assert stack_groups.users_call(frames) == "net.py:1 in forward"


@pytest.mark.parametrize(
    ("phases", "steps", "absent"),
    [
        ({0: "backward", 1: "data", 2: "backward"}, {}, [1]),
        ({0: "collective", 1: "", 2: "backward"}, {}, [1]),
        ({0: "collective", 1: "backward", 2: "collective"}, {}, [1]),
        ({0: UNRESPONSIVE, 1: "data", 2: "backward"}, {}, [0]),
        ({0: "backward", 1: STOPPED}, {}, [1]),
        ({0: "collective", 1: "collective"}, {0: 8, 1: 7}, [1]),
        ({0: "backward", 1: "backward"}, {0: 8, 1: 8}, [0, 1]),
        ({0: "data"}, {0: 8}, [0]),
    ],
)
def test_the_absent_rank_is_the_one_that_does_not_wait(
    phases: dict[int, str], steps: dict[int, int], absent: list[int]
) -> None:
    assert stack_groups.find_absent(phases, steps) == absent


def test_a_stall_is_described_in_a_sentence() -> None:
    one = Stall(since=100.0, ranks=[1], phase="data", call="data.py:7 in load", waiting="backward")
    where = "rank 1 is in data (data.py:7 in load); the others wait in backward"
    assert one.describe(112.0) == f"no progress for 12.0 s: {where}"
    all_ranks = Stall(since=100.0, ranks=[0, 1], phase="collective")
    assert all_ranks.describe(109.0) == "no progress for 9.0 s: ranks 0–1 are in collective"
    assert Stall(since=100.0, ranks=[0], phase=STOPPED).as_json(101.0)["since_s"] == 1.0
