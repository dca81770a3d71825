"""When ranks make no progress: after which pause that is a stall, and which rank is absent."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import distrain
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.batch_scheduler import batch_scheduler
from distrain.runners.protocol import collectives
from distrain.runners.protocol.collectives import (
    DEFAULT_GROUP,
    Entry,
    read_collectives,
    summarize,
)
from distrain.runners.protocol.events import (
    Event,
    Failure,
    Finished,
    Frame,
    GroupCollectives,
    Hello,
    Job,
    StackRequest,
    Stacks,
    ThreadStack,
)
from distrain.runners.records.folder import create_run
from distrain.runners.records.stacks import read_last_stacks
from distrain.runners.records.stall import Condition, RankPosition, Stall
from distrain.runners.records.writer import RecordWriter
from distrain.runners.supervision import (
    background,
    pending_collectives,
    stack_collector,
    stack_groups,
    stall_probe,
    stall_watch,
)
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.coordinator import Coordinator
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.live_run import LiveRun
from distrain.runners.supervision.rank_connections import RankConnections
from distrain.runners.supervision.stall_watch import StallWatch
from distrain.runners.system.devices import Device
from tests.support.connections import SentEvents

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


def test_long_steps_that_recur_are_no_stall(clock: Clock) -> None:
    ranks = watch()
    for pause in (0.3, 15.0, *[0.1] * 500, 15.0, *[0.1] * 500):
        clock.now += pause
        for rank in (0, 1):
            ranks.record_step(rank, pause)
    clock.now += 29
    assert ranks.stalled() == []
    clock.now += 2
    assert ranks.stalled() == [0, 1]
    for pause in (400.0, 400.0):  # these were stalls
        clock.now += pause
        ranks.record_step(0, pause)
        ranks.record_step(1, pause)
    clock.now += STALL_S + 1
    assert ranks.stalled() == [0, 1]


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
        ([(f"{TORCH}/nn/modules/module.py", "state_dict"), ("/home/me/net.py", "hook")],
         "checkpoint"),
        ([("/src/distrain/runners/training/training_state.py", "save"),
          ("/home/me/data.py", "state")], "checkpoint"),
        ([(f"{TORCH}/nn/modules/module.py", "_call_impl"),
          (f"{TORCH}/_dynamo/convert_frame.py", "__call__"),
          (f"{TORCH}/_inductor/async_compile.py", "wait")], "compilation"),
        ([(f"{TORCH}/autograd/__init__.py", "backward"),
          (f"{TORCH}/_inductor/compile_fx.py", "compile_fx_inner")], "compilation"),
        ([(f"{TORCH}/nn/modules/module.py", "_call_impl"),
          (f"{TORCH}/_dynamo/eval_frame.py", "_fn")], "forward"),
        ([("/src/distrain/runners/training/loop.py", "pause"),
          (f"{TORCH}/cuda/streams.py", "synchronize")], "GPU synchronisation"),
        ([("/home/me/train.py", "main")], ""),
    ],
)  # fmt: skip
def test_calls_tell_the_phase(calls: list[tuple[str, str]], phase: str) -> None:
    assert stack_groups.phase_of([Frame(file, 1, function) for file, function in calls]) == phase


@pytest.mark.parametrize(
    ("file", "function", "phase"),
    [("_inductor/compile_fx.py", "compile_fx_inner", "compilation"),
     ("utils/checkpoint.py", "recompute_fn", "backward")],
)  # fmt: skip
def test_the_backward_pass_of_a_gpu_is_compiled_in_another_thread(
    file: str, function: str, phase: str
) -> None:
    waiting = Frame(f"{TORCH}/autograd/__init__.py", 7, "backward")
    autograd = Frame(f"{TORCH}/{file}", 7, function)
    threads = [
        ThreadStack(name="MainThread", frames=[waiting]),
        ThreadStack(name="thread 7", frames=[autograd]),
    ]
    assert stack_groups.phase_of_rank(Stacks(time=1.0, rank=0, threads=threads)) == phase


def test_the_phases_of_our_own_code_name_functions_that_it_has() -> None:
    ours = [(path, names) for _, path, names in stack_groups._PHASES if "distrain/" in path]
    assert ours
    for path, names in ours:
        text = (Path(distrain.__file__).parents[1] / path).read_text()
        assert all(f"def {name}(" in text for name in names), path


def test_the_users_call_is_the_innermost_one_of_no_library() -> None:
    calls = [("/me/train.py", "main"), ("/me/net.py", "forward"), (f"{TORCH}/nn/x.py", "relu")]
    frames = [Frame(file, line, function) for line, (file, function) in enumerate(calls)]
    assert stack_groups.users_call(frames) == "net.py:1 in forward"


def at(
    rank: int, phase: str = "", step: int = 8, condition: str = "", pending: bool = False
) -> RankPosition:
    return RankPosition(
        rank=rank,
        since=100.0,
        step=step,
        phase=phase,
        condition=condition,
        collective="gloo:all_reduce" if pending else "",
    )


@pytest.mark.parametrize(
    ("positions", "behind", "absent"),
    [
        ([at(0, "backward"), at(1, "data"), at(2, "backward")], [], [1]),
        ([at(0, "collective"), at(1), at(2, "backward")], [], [1]),
        ([at(0, "collective"), at(1, "backward"), at(2, "collective")], [], [1]),
        ([at(0, condition=Condition.UNRESPONSIVE), at(1, "data"), at(2, "backward")], [1], [0]),
        ([at(0, "backward"), at(1, condition=Condition.STOPPED)], [], [1]),
        ([at(0, "collective"), at(1, "collective", 7)], [], [1]),
        ([at(0, "forward"), at(1, "forward")], [1], [1]),
        ([at(0, "collective"), at(1, "collective"), at(2)], [1, 2], [2]),
        ([at(0, "collective"), at(1, "backward", pending=True), at(2)], [1, 2], [2]),
        ([at(0, "collective"), at(1, pending=True), at(2)], [1, 2], [1, 2]),
        ([at(0, "collective"), at(1, "collective"), at(2, "collective")], [1, 2], [1, 2]),
        ([at(0, "backward"), at(1, "backward")], [], [0, 1]),
        ([at(0, "data")], [], [0]),
    ],
)
def test_the_absent_rank_is_the_one_that_does_not_wait(
    positions: list[RankPosition], behind: list[int], absent: list[int]
) -> None:
    assert stack_groups.find_absent(positions, behind) == absent


@pytest.mark.parametrize(
    ("position", "cpu_s", "computes"),
    [
        (at(0), 0.5, True),
        (at(0, "forward"), 0.5, True),
        (at(0), 0.0, False),
        (at(0, "collective"), 0.5, False),  # some libraries wait with a loop
        (at(0, pending=True), 0.5, False),
    ],
)
def test_a_rank_that_computes_has_not_stalled(
    position: RankPosition, cpu_s: float, computes: bool
) -> None:
    before, now = (
        {0: Stacks(time=time_s, rank=0, threads=[], cpu_s=2.0 + used)}
        for time_s, used in ((100.0, 0.0), (101.0, cpu_s))
    )
    busy = stall_probe.busy_ranks(before, now)
    assert stack_groups.are_computing([position], busy) is computes
    assert stall_probe.busy_ranks({}, now) == set()  # not known yet


def entry(
    number: int, *, retired: bool = True, call: str = "gloo:all_reduce", group: str = "0"
) -> Entry:
    return Entry(
        process_group=(group, DEFAULT_GROUP if group == "0" else "undefined"),
        collective_seq_id=number,
        retired=retired,
        profiling_name=call,
        input_dtypes=["Float"],
        input_sizes=[[3, 5]],
    )


def test_the_rank_that_has_not_begun_the_collective_is_behind() -> None:
    waiting = [entry(7), entry(8, retired=False), entry(9, retired=False)]
    ranks = {0: waiting, 1: [entry(7)], 2: waiting, 3: []}
    collectives = {rank: summarize(entries) for rank, entries in ranks.items()}
    assert collectives[0] == [
        GroupCollectives(
            group=DEFAULT_GROUP, newest=9, pending="gloo:all_reduce Float[3, 5]", pending_number=8
        )
    ]
    assert pending_collectives.find_behind(collectives) == {1, 3}


def test_only_ranks_of_a_group_can_be_behind_in_it() -> None:
    left, right = entry(4, group="1"), entry(2, group="2", retired=False)
    ranks = {0: [left], 1: [left], 2: [right], 3: [entry(1, group="2")]}
    collectives = {rank: summarize(entries) for rank, entries in ranks.items()}
    assert pending_collectives.find_behind(collectives) == {3}


def test_a_rank_that_waits_in_another_group_is_not_the_one_that_is_behind() -> None:
    # A mesh of 2 x 2 ranks with groups 1 and 2 for its rows, 3 and 4 for its columns.
    ranks = {
        0: [entry(5, group="1"), entry(3, group="3", retired=False)],
        1: [entry(5, group="1"), entry(3, group="4", retired=False)],
        2: [entry(2, group="3"), entry(5, group="2", retired=False)],
        3: [entry(2, group="4"), entry(4, group="2")],
    }
    collectives = {rank: summarize(entries) for rank, entries in ranks.items()}
    assert pending_collectives.find_behind(collectives) == {3}
    crossed = {
        0: [entry(1, group="2"), entry(4, group="1", retired=False)],
        1: [entry(3, group="1"), entry(2, group="2", retired=False)],
    }
    collectives = {rank: summarize(entries) for rank, entries in crossed.items()}
    assert pending_collectives.find_behind(collectives) == {0, 1}


def test_different_collectives_that_wait_for_each_other_are_named() -> None:
    calls = {0: "gloo:all_reduce", 1: "gloo:broadcast", 2: "gloo:all_reduce"}
    collectives = {r: summarize([entry(7, retired=False, call=c)]) for r, c in calls.items()}
    assert pending_collectives.find_behind(collectives) == set()
    assert pending_collectives.describe_mismatch(collectives) == (
        "the ranks call different collectives as number 7: "
        "rank 0 gloo:all_reduce Float[3, 5], rank 1 gloo:broadcast Float[3, 5]"
    )


@pytest.mark.parametrize(("call", "agrees"), [("gloo:all_to_all", True), ("gloo:reduce", False)])
def test_tensors_of_other_sizes_are_another_call_only_where_they_must_be_equal(
    call: str, agrees: bool
) -> None:
    mine, other = (entry(7, retired=False, call=call) for _ in range(2))
    other.input_sizes = [[4, 5]]
    collectives = {0: summarize([mine]), 1: summarize([other])}
    assert (pending_collectives.describe_mismatch(collectives) == "") is agrees


@pytest.mark.parametrize(
    ("calls", "condition", "absent", "mismatch"),
    [
        ((("gloo:barrier", 7), ("gloo:all_reduce", 7)), "", [0, 1], True),
        ((("gloo:all_reduce", 7), ("gloo:all_reduce", 7)), "", [1], False),
        ((("gloo:barrier", 7), ("gloo:all_reduce", 7)), Condition.STOPPED, [0], False),
    ],
)
def test_no_rank_is_absent_where_all_wait_in_different_collectives(
    calls: tuple[tuple[str, int], ...], condition: str, absent: list[int], mismatch: bool
) -> None:
    positions = [at(0, "collective", pending=True, condition=condition)]
    positions.append(at(1, "backward", pending=True))
    answers = {
        rank: Stacks(
            time=100.0,
            rank=rank,
            threads=[],
            collectives=summarize([entry(number, retired=False, call=call)]),
        )
        for rank, (call, number) in enumerate(calls)
    }
    stall = stall_probe._stall(positions, answers, 100.0)
    assert stall.ranks == absent
    assert bool(stall.mismatch) is mismatch


def test_a_stall_is_described_in_a_sentence() -> None:
    absent = RankPosition(rank=1, since=100.0, phase="data", call="data.py:7 in load")
    one = Stall(since=100.0, ranks=[1], waiting="backward", positions=[at(0), absent])
    where = "rank 1 is in data (data.py:7 in load); the others wait in backward"
    assert one.describe(112.0) == f"no progress for 12.0 s: {where}"
    both = [at(0, "collective"), at(1, "collective")]
    all_ranks = Stall(since=100.0, ranks=[0, 1], positions=both)
    assert all_ranks.describe(109.0) == "no progress for 9.0 s: ranks 0–1 are in collective"
    stopped = Stall(since=100.0, ranks=[0], positions=[at(0, "data", condition="not responding")])
    assert stopped.describe(109.0) == "no progress for 9.0 s: rank 0 is not responding in data"
    exited = [at(0, "collective"), at(1, condition=Condition.EXITED)]
    gone = Stall(since=100.0, ranks=[1], waiting="collective", positions=exited)
    text = "no progress for 9.0 s: rank 1 has exited; the others wait in collective"
    assert gone.describe(109.0) == text
    lingering = Stall(since=100.0, ranks=[0, 1], positions=[at(0, "exit"), at(1, "exit")])
    assert lingering.describe(109.0) == "no progress for 9.0 s: ranks 0–1 are exiting"
    assert stopped.as_json(101.0)["since_s"] == 1.0


def test_ranks_that_never_connect_are_overdue_after_the_limit(clock: Clock) -> None:
    ranks = watch()
    clock.now += STALL_S + 1
    assert ranks.is_start_overdue
    ranks.restart()
    assert not ranks.is_start_overdue


def test_the_pause_of_a_script_that_never_connects_is_counted_from_its_start(clock: Clock) -> None:
    ranks = StallWatch(Evidence(world_size=2, is_script=True), STALL_S)
    clock.now += STALL_S + 1
    assert ranks.is_overdue(1)
    assert ranks.pause_of(1) == STALL_S + 1


def test_a_flight_recorder_in_an_unknown_format_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = SimpleNamespace(_dump_fr_trace_json=lambda *_: b'{"entries": [{"strange": 1}]}')
    monkeypatch.setitem(sys.modules, collectives.MODULE, recorder)
    assert read_collectives() == []


def test_a_rank_that_connects_while_the_others_are_asked_is_not_unresponsive(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_collector, "ANSWER_S", 0.05)
    notices: list[str] = []
    plan = Plan(world_size=3, devices=[Device(kind="cpu", index=0)], threads=1, backend="gloo")
    writer = RecordWriter(create_run(tmp_path, RunConfig(), plan=plan, word="x"))
    run = LiveRun(RunConfig(), plan, writer, writer.set_state, "here", None)
    monkeypatch.setattr(run, "notice", lambda text, _: notices.append(text))
    coordinator = Coordinator(run)
    clock.now += run.config.report.stall_s + 1

    def connect(rank: int) -> None:
        coordinator.received(SentEvents(coordinator), Hello(rank=rank, world_size=3))

    async def check() -> None:
        connect(0)
        check = asyncio.create_task(coordinator.stall_probe.check())
        await asyncio.sleep(0)  # rank 0 is asked
        connect(2)
        await check
        stall = writer.state.stall
        assert stall is not None
        assert {each.rank: each.condition for each in stall.positions} == {
            0: Condition.UNRESPONSIVE,
            1: "",
        }
        run.evidence.failures[0] = (0.0, Failure(time=1.0, rank=0, error="E", message=""))
        connect(1)
        await coordinator.stall_probe.check()

    asyncio.run(check())
    assert writer.state.stall is None
    assert len(notices) == 1  # of the stall; a run with a failed rank does not continue


def test_ranks_that_slurm_has_suspended_have_not_stalled(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_collector, "ANSWER_S", 0.05)
    plan = Plan(world_size=1, devices=[Device(kind="cpu", index=0)], threads=1, backend="gloo")
    writer = RecordWriter(create_run(tmp_path, RunConfig(), plan=plan, word="x"))
    config = RunConfig(launcher="slurm")
    run = LiveRun(config, plan, writer, writer.set_state, "here", batch_scheduler(config))
    coordinator = Coordinator(run)
    notices: list[str] = []
    monkeypatch.setattr(run, "notice", lambda text, _: notices.append(text))

    async def check(state: str) -> bool:
        run.evidence.job = Job(time=1.0, id="7", state=state)
        clock.now += config.report.stall_s + 1
        await coordinator.stall_probe.check()
        return writer.state.stall is not None

    async def follow() -> None:
        coordinator.received(SentEvents(coordinator), Hello(rank=0, world_size=1))
        assert not await check("SUSPENDED")
        assert await check("RUNNING")
        assert not await check("SUSPENDED")

    asyncio.run(follow())
    assert len(notices) == 1  # of the stall; a suspended run does not continue


def test_the_duration_of_a_stall_does_not_change_with_the_hosts_clock(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given two stalled ranks, and a clock that is set forward by a year in between
    set_by = 0.0
    wall = SimpleNamespace(monotonic=clock.monotonic, time=lambda: 1e9 + clock.now + set_by)
    monkeypatch.setattr(stall_probe, "time", wall)
    monkeypatch.setattr(stack_collector, "ANSWER_S", 0.05)
    notices: list[str] = []
    plan = Plan(world_size=2, devices=[Device(kind="cpu", index=0)], threads=1, backend="gloo")
    writer = RecordWriter(create_run(tmp_path, RunConfig(), plan=plan, word="x"))
    run = LiveRun(RunConfig(), plan, writer, writer.set_state, "here", None)
    monkeypatch.setattr(run, "notice", lambda text, _: notices.append(text))
    coordinator = Coordinator(run)
    clock.now += run.config.report.stall_s + 1
    coordinator.received(SentEvents(coordinator), Hello(rank=0, world_size=2))
    asyncio.run(coordinator.stall_probe.check())
    stall = writer.state.stall
    assert stall is not None
    lasted = wall.time() - stall.since
    set_by = 365 * 86400.0
    clock.now += 30
    # when the ranks are asked once more
    asyncio.run(coordinator.stall_probe.check())
    # then the beginning is in the time of the new clock
    stall = writer.state.stall
    assert stall is not None
    assert wall.time() - stall.since == pytest.approx(lasted + 30)
    # and so is the duration, once all go on
    coordinator.received(SentEvents(coordinator), Hello(rank=1, world_size=2))
    asyncio.run(coordinator.stall_probe.check())
    assert notices[-1] == f"the run continues after a stall of {lasted + 30:.0f} s"


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    plan = Plan(world_size=1, devices=[Device(kind="cpu", index=0)], threads=1, backend="gloo")
    writer = RecordWriter(create_run(tmp_path, RunConfig(), plan=plan, word="x"))
    return Coordinator(LiveRun(RunConfig(), plan, writer, writer.set_state, "here", None))


def test_a_rank_that_compiles_may_take_as_long_as_a_first_step(
    coordinator: Coordinator, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = SimpleNamespace(monotonic=clock.monotonic, time=lambda: 1e9 + clock.now)
    monkeypatch.setattr(stall_probe, "time", wall)
    writer = coordinator.run.writer
    watch = coordinator.run.stall_watch

    async def collect() -> dict[int, Stacks]:
        frame = Frame(f"{TORCH}/_dynamo/convert_frame.py", 7, "__call__")
        thread = ThreadStack(name="MainThread", frames=[frame])
        return {0: Stacks(rank=0, time=1.0, threads=[thread])}

    async def check(pause_s: float) -> Stall | None:
        clock.now += pause_s
        await coordinator.stall_probe.check()
        return writer.state.stall

    monkeypatch.setattr(coordinator.stall_probe.collector, "collect", collect)
    coordinator.received(SentEvents(coordinator), Hello(rank=0, world_size=1))
    watch.record_phase(0, "training")
    watch.record_step(0, 0.01)
    assert asyncio.run(check(stall_watch.LEAST_S + 1)) is None
    stall = asyncio.run(check(coordinator.run.config.report.stall_s))
    assert stall is not None
    assert stall.cause == "rank 0 is in compilation"


def begin_two_ranks(tmp_path: Path, *, is_script: bool) -> Coordinator:
    """Return the coordinator of a run whose two ranks have finished a step."""
    plan = Plan(world_size=2, devices=[Device(kind="cpu", index=0)], threads=1, backend="gloo")
    writer = RecordWriter(create_run(tmp_path, RunConfig(), plan=plan, word="x"))
    run = LiveRun(RunConfig(), plan, writer, writer.set_state, "here", None)
    run.evidence.is_script = is_script
    coordinator = Coordinator(run)
    for rank in (0, 1):
        coordinator.received(SentEvents(coordinator), Hello(rank=rank, world_size=2))
        run.stall_watch.record_phase(rank, "running" if is_script else "training")
        run.stall_watch.record_step(rank, 0.01)
    return coordinator


@pytest.mark.parametrize("batch_s", [2.0, None, 70.0])
@pytest.mark.parametrize("is_script", [False, True])
def test_an_evaluation_that_goes_on_is_no_stall(
    batch_s: float | None,
    is_script: bool,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given rank 0, which evaluates, and rank 1, which waits for it
    monkeypatch.setattr(stall_probe, "FIRST_PAUSE_S", 0.0)
    coordinator = begin_two_ranks(tmp_path, is_script=is_script)
    writer, watch = coordinator.run.writer, coordinator.run.stall_watch
    waiting = [Frame(f"{TORCH}/distributed/distributed_c10d.py", 7, "barrier")]
    calls = {0: [Frame("/home/me/train.py", 7, "evaluate")], 1: waiting}
    batches = [1.0, batch_s]

    async def collect() -> dict[int, Stacks]:
        return {
            rank: Stacks(
                rank=rank,
                time=1.0,
                threads=[ThreadStack(name="MainThread", frames=frames)],
                batch_s=None if rank else batches[-1],
            )
            for rank, frames in calls.items()
        }

    monkeypatch.setattr(coordinator.stall_probe.collector, "collect", collect)
    for rank in () if is_script else (0, 1):
        watch.record_phase(rank, "evaluating")
    # when it takes longer than what has not been seen before may take
    clock.now += STALL_S + 20
    asyncio.run(coordinator.stall_probe.check())
    # then it has stalled only if it reads no batches
    stall = writer.state.stall
    if batch_s == 2.0:
        assert stall is None
    else:
        assert stall is not None
        assert stall.ranks == [0]
    # and no more once it goes on
    batches.pop()
    asyncio.run(coordinator.stall_probe.check())
    assert writer.state.stall is None


def test_a_rank_that_waits_too_long_for_one_that_trains_on_has_stalled(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = begin_two_ranks(tmp_path, is_script=True)
    waiting = Frame(f"{TORCH}/distributed/distributed_c10d.py", 7, "barrier")

    async def collect() -> dict[int, Stacks]:
        calls = {0: Frame("/home/me/train.py", int(clock.now), "train"), 1: waiting}
        return {
            rank: Stacks(
                rank=rank,
                time=1.0,
                threads=[ThreadStack(name="MainThread", frames=[frame])],
                batch_s=None if rank else clock.now,  # of an evaluation before it went on
            )
            for rank, frame in calls.items()
        }

    monkeypatch.setattr(coordinator.stall_probe.collector, "collect", collect)
    clock.now += STALL_S + 1
    coordinator.run.stall_watch.record_step(0, 0.01)
    asyncio.run(coordinator.stall_probe.check())
    stall = coordinator.run.writer.state.stall
    assert stall is not None
    assert stall.ranks == [0]


@pytest.mark.parametrize(("steps", "absent"), [((200, 200), [0, 1]), ((200, 199), [1])])
def test_steps_that_no_window_has_reported_yet_count(
    steps: tuple[int, int],
    absent: list[int],
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given ranks that hang in the same place; their last windows have ended at other steps
    coordinator = begin_two_ranks(tmp_path, is_script=True)
    coordinator.run.evidence.steps.update({0: 198, 1: 187})
    frame = Frame("/home/me/train.py", 7, "read")

    async def collect() -> dict[int, Stacks]:
        thread = ThreadStack(name="MainThread", frames=[frame])
        return {
            rank: Stacks(rank=rank, time=1.0, threads=[thread], step=step)
            for rank, step in enumerate(steps)
        }

    monkeypatch.setattr(coordinator.stall_probe.collector, "collect", collect)
    clock.now += STALL_S + 1
    asyncio.run(coordinator.stall_probe.check())
    stall = coordinator.run.writer.state.stall
    assert stall is not None
    assert stall.ranks == absent
    assert tuple(each.step for each in stall.positions) == steps


def test_different_collectives_are_remembered_until_a_rank_goes_on(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_probe, "FIRST_PAUSE_S", 0.0)
    coordinator = begin_two_ranks(tmp_path, is_script=True)
    run = coordinator.run
    waiting = Frame(f"{TORCH}/distributed/distributed_c10d.py", 7, "wait")
    have_timed_out = False

    async def collect() -> dict[int, Stacks]:
        return {
            rank: Stacks(
                rank=rank,
                time=1.0,
                threads=[ThreadStack(name="MainThread", frames=[waiting])],
                collectives=summarize([entry(8, retired=have_timed_out, call=call)]),
                step=5,
            )
            for rank, call in enumerate(("gloo:all_reduce", "gloo:broadcast"))
        }

    monkeypatch.setattr(coordinator.stall_probe.collector, "collect", collect)
    clock.now += STALL_S + 1
    asyncio.run(coordinator.stall_probe.check())
    assert "rank 1 gloo:broadcast" in run.evidence.mismatch
    have_timed_out = True
    clock.now += STALL_S
    asyncio.run(coordinator.stall_probe.check())
    stall = run.writer.state.stall
    assert stall is not None
    assert not stall.mismatch
    assert "rank 1 gloo:broadcast" in run.evidence.mismatch
    run.evidence.steps[0] += 1
    assert not run.evidence.mismatch


def test_stacks_are_in_the_record_before_a_viewer_gets_them(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = coordinator.run.writer
    kept: list[str] = []

    class Viewer(SentEvents):
        def send(self, event: Event) -> None:
            super().send(event)
            kept.append(read_last_stacks(writer.dir))

    async def collect() -> dict[int, Stacks]:
        thread = ThreadStack(name="MainThread", frames=[Frame("train.py", 7, "load")])
        return {0: Stacks(rank=0, time=1.0, threads=[thread])}

    async def ask() -> None:
        coordinator.stall_probe.answer(viewer)
        while len(viewer.sent) < 2:
            await asyncio.sleep(0)

    monkeypatch.setattr(coordinator.stall_probe.collector, "collect", collect)
    viewer = Viewer(coordinator)
    asyncio.run(ask())
    assert all("train.py:7 in load" in text for text in kept)


def test_the_last_stacks_of_ranks_that_answer_no_more_remain(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = ThreadStack(name="MainThread", frames=[Frame("train.py", 7, "load")])
    answers = iter([{0: Stacks(rank=0, time=1.0, threads=[thread])}, {}])

    async def collect() -> dict[int, Stacks]:
        return next(answers)

    async def ask() -> None:
        viewer = SentEvents(coordinator)
        for _ in range(2):
            viewer.sent.clear()
            coordinator.stall_probe.answer(viewer)
            while StackRequest() not in viewer.sent:
                await asyncio.sleep(0)

    monkeypatch.setattr(coordinator.stall_probe.collector, "collect", collect)
    asyncio.run(ask())
    assert "train.py:7 in load" in read_last_stacks(coordinator.run.writer.dir)


def test_a_launcher_that_was_restarted_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "CHECK_S", 0.001)
    monkeypatch.setattr(background, "is_suspended", lambda pid: pid == 2)
    launcher = SimpleNamespace(pid=1)
    notices: asyncio.Queue[str] = asyncio.Queue()
    coordinator = SimpleNamespace(run=SimpleNamespace(notice=notices.put_nowait))

    async def restart() -> str:
        watch = asyncio.create_task(background.watch_launcher(launcher, coordinator))
        await asyncio.sleep(0.01)
        launcher.pid = 2
        text = await notices.get()
        watch.cancel()
        return text

    assert asyncio.run(restart()) == (
        "the launcher (process 2) was stopped by a signal; "
        "if it still is, `kill -CONT 2` continues it"
    )


def test_an_impossible_process_number_is_that_of_no_process() -> None:
    ranks = RankConnections("here")
    connection = Connection(SimpleNamespace())
    ranks.add(connection, Hello(rank=0, pid=-5))
    assert ranks.processes == {}
    assert ranks.remove(connection) == 0


def test_a_background_task_that_fails_is_reported_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "RETRY_S", 0.0)
    notices: list[str] = []
    errors = [KeyError(3), OSError("gone")]

    async def watch() -> None:
        if errors:
            raise errors.pop(0)

    asyncio.run(background.keep_running(partial(watch), SimpleNamespace(notice=notices.append)))
    assert not errors
    assert len(notices) == 1
    assert notices[0].endswith("watch: KeyError(3)")
