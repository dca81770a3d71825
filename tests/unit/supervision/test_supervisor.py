"""How the supervisor handles events, without processes; see tests/integration for those."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.launchers import command
from distrain.runners.protocol.client import ServerAddresses
from distrain.runners.protocol.events import (
    Event,
    Exited,
    Facts,
    Failure,
    Finished,
    GpuSample,
    Hello,
    Job,
    NodeFinished,
    Notice,
    Phase,
    RankSample,
    Rendezvous,
    Sampled,
    Signalled,
    Stop,
    Welcome,
)
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunState, read_state
from distrain.runners.supervision import background, launcher_process, state_writer
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.coordinator import OUT_OF_TIME
from distrain.runners.supervision.device_queue import DeviceLease
from distrain.runners.supervision.outcome import Outcome, judge
from distrain.runners.supervision.supervisor import Supervisor, _lock
from distrain.runners.system.processes import AT_ONCE, is_running
from tests.support.connections import SentEvents
from tests.support.records import make_window


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    config = RunConfig.from_dict({"devices": "cpu:4"})
    return Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="ddp"))


def test_a_full_disk_neither_loses_a_rank_nor_the_state(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, state: RunState) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("distrain.runners.records.writer.write_state", full)
        supervisor.state.set(status="stopping")
        supervisor.state.set(reason="on request")
    assert read_state(supervisor.folder).status == "starting"
    supervisor.state.set()
    state = read_state(supervisor.folder)
    assert (state.status, state.reason) == ("stopping", "on request")


def test_only_a_full_disk_lets_the_state_be_written_in_place(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("distrain.runners.system.files.write_atomically", fail)
    supervisor.state.set(status="stopping")
    assert read_state(supervisor.folder).status == "starting"


def test_a_live_run_says_that_its_measurements_do_not_fit_on_a_full_disk(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("distrain.runners.system.files.write_atomically", full)
    for step in range(1, 3000):
        supervisor.writer.add(make_window(0, step))
    supervisor.writer._db.execute("PRAGMA max_page_count = 1")
    supervisor.state.commit()
    assert "full" in read_state(supervisor.folder).reason
    supervisor.writer._db.execute("PRAGMA max_page_count = 100000")
    supervisor.state.commit()
    assert read_state(supervisor.folder).reason == ""


def test_a_run_that_ends_on_a_full_disk_has_its_state_and_reports_what_is_missing(
    supervisor: Supervisor,
) -> None:
    writer = supervisor.writer
    reserve = writer.dir / ".reserve"
    had_reserve = []
    reserve.touch()
    for step in range(1, 3000):
        writer.add(make_window(0, step))
    writer._db.execute("PRAGMA max_page_count = 1")  # as a full disk, until the record is closed
    writer._db.set_trace_callback(
        lambda statement: had_reserve.append(reserve.exists()) if "BEGIN" in statement else None
    )
    supervisor.close(Outcome(status="completed", reason="all processes exited with code 0"))
    assert had_reserve == [True, False]  # what is too large for the disk does not fill the reserve
    state = read_state(supervisor.folder)
    assert state.status == "completed"
    assert state.reason.startswith("all processes exited with code 0; the last measurements are")


def test_a_rank_that_has_disconnected_is_not_sampled(supervisor: Supervisor) -> None:
    connection = Connection(supervisor.coordinator)
    supervisor.coordinator.received(connection, Hello(rank=0, world_size=4, pid=os.getpid()))
    supervisor.coordinator.disconnected(connection)
    assert supervisor.coordinator.run.ranks.pids == {}


def test_only_ranks_of_this_host_are_sampled(supervisor: Supervisor) -> None:
    hosts = {0: socket.gethostname(), 1: "elsewhere", 2: "", 3: socket.gethostname()}
    for rank, host in hosts.items():
        pid = 0 if rank == 3 else os.getpid()
        hello = Hello(rank=rank, world_size=4, pid=pid, host=host)
        supervisor.coordinator.received(Connection(supervisor.coordinator), hello)
    assert set(supervisor.coordinator.run.ranks.pids) == {0, 2}


@pytest.fixture
def two_hosts(tmp_path: Path) -> Supervisor:
    config = RunConfig.from_dict({"devices": "cpu:1", "strategy": "ddp", "dist": {"nodes": 2}})
    return Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="ddp"))


def test_ranks_of_a_host_with_the_same_name_are_not_sampled_here(two_hosts: Supervisor) -> None:
    peers = {0: "10.0.0.2", 1: "10.0.0.3"}
    for rank, address in peers.items():
        connection = Connection(two_hosts.coordinator)
        transport = Mock(spec=asyncio.Transport)
        transport.get_extra_info = {"peername": (address, 5), "sockname": ("10.0.0.2", 7)}.get
        connection._transport = transport
        hello = Hello(rank=rank, world_size=2, pid=os.getpid(), host=socket.gethostname())
        two_hosts.coordinator.received(connection, hello)
    assert set(two_hosts.coordinator.run.ranks.pids) == {0}
    assert set(two_hosts.coordinator.run.ranks.distant_pids) == {1}


@pytest.mark.parametrize(
    "event",
    [
        Hello(role="node", node=0, host="elsewhere"),
        Hello(role="task", host="elsewhere"),
        Job(time=1.0, id="7", state="PENDING"),
        Phase(time=1.0, rank=4, phase="saving"),
        Exited(time=1.0, rank=-1, pid=3, code=9),
    ],
)
def test_events_that_do_not_fit_the_run_are_refused(
    event: Event, supervisor: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor.coordinator.received(Connection(supervisor.coordinator), event)
    supervisor.writer.commit()
    assert not list(Record(supervisor.folder).events())
    assert supervisor.writer.state.job is None
    assert not supervisor.coordinator.run.membership.has_unfinished
    assert "connection refused: " in capsys.readouterr().err


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_the_limit_of_the_time_counts_what_has_passed_although_the_clock_is_set(
    jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.from_dict({"devices": "cpu:1", "train": {"max_time_s": 3600.0}})
    folder = create_run(tmp_path, config, plan=plan_here(config), word="ddp")
    coordinator = Supervisor(folder).coordinator
    now, clock = time.time, state_writer._uptime
    facts = {"train_samples": 8, "eval_samples": 0, "steps_per_epoch": 8, "total_steps": 80}
    coordinator.run.set_state(facts=Facts(time=now(), parameters=1, backend="gloo", **facts))
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    assert not coordinator.run.is_out_of_time
    monkeypatch.setattr(state_writer, "_uptime", lambda: clock() + 3600.0)
    assert coordinator.run.is_out_of_time


def test_only_node_agents_report_hosts_and_only_those_of_the_run(two_hosts: Supervisor) -> None:
    coordinator = two_hosts.coordinator
    first, second, viewer = (Connection(coordinator) for _ in range(3))
    coordinator.received(first, Hello(role="node", node=0, host="h0"))
    coordinator.received(second, Hello(role="node", host="h1"))
    coordinator.received(viewer, Hello(role="viewer"))
    gpus = [GpuSample(time=1.0, gpu=number, uuid="u", name="n") for number in (-5, 3, 1005)]
    ranks = [RankSample(time=1.0, rank=rank, cpu=1.0, rss=1.0, processes=1) for rank in (1, 77)]
    sampled = Sampled(gpus=gpus, ranks=ranks)
    assert coordinator.run.membership.number_samples(viewer, sampled) == []
    numbered = coordinator.run.membership.number_samples(second, sampled)
    assert [each.gpu for each in numbered if isinstance(each, GpuSample)] == [1003]
    assert [each.rank for each in numbered if isinstance(each, RankSample)] == [1]
    for connection in (viewer, second):
        coordinator.received(connection, Rendezvous(address="elsewhere:1"))
        assert coordinator.run.membership.meeting_place == ""
    coordinator.received(first, Rendezvous(address="here:1"))
    assert coordinator.run.membership.meeting_place == "here:1"


def test_a_node_reports_the_ends_of_its_own_ranks_only(two_hosts: Supervisor) -> None:
    coordinator, node = two_hosts.coordinator, Connection(two_hosts.coordinator)
    coordinator.received(node, Hello(role="node", node=1, host="h1"))
    for rank in (0, 1):
        coordinator.received(node, Exited(time=1.0, rank=rank, pid=3, code=9))
    assert set(coordinator.run.evidence.exits) == {1}


def test_a_host_whose_agent_somebody_ends_has_ended_the_run(two_hosts: Supervisor) -> None:
    coordinator = two_hosts.coordinator
    first, node = Connection(coordinator), Connection(coordinator)
    coordinator.received(first, Hello(role="node", node=0, host="h0"))
    coordinator.received(node, Hello(role="node", node=1, host="h1"))
    coordinator.received(Connection(coordinator), Hello(rank=0, world_size=2, host="h0"))
    coordinator.received(node, Signalled(time=1.0, signal=signal.SIGTERM))
    assert coordinator.run.conditions.trouble.is_set()
    assert coordinator.run.evidence.launcher_signal == 0
    reason = judge(coordinator.run.evidence).reason
    assert reason.startswith("h1 left the run: the process that starts its ranks was ended by SIG")


def test_an_agent_that_is_ended_with_the_run_has_not_ended_it(two_hosts: Supervisor) -> None:
    """As where the ranks of another host were lost while its own agent is still connected."""
    coordinator = two_hosts.coordinator
    agent, ranks = Connection(coordinator), [Connection(coordinator) for _ in range(2)]
    coordinator.received(agent, Hello(role="node", node=0, host="h0"))
    for rank, connection in enumerate(ranks):
        hello = Hello(rank=rank, local_rank=0, world_size=2, host=f"h{rank}")
        coordinator.received(connection, hello)
    coordinator.disconnected(ranks[1])
    coordinator.run.evidence.launcher_ended = True
    coordinator.disconnected(agent)
    assert judge(coordinator.run.evidence).reason.startswith("rank 1 on h1: ")


def test_a_host_begins_once_all_have_joined_also_where_one_has_left_before(tmp_path: Path) -> None:
    config = RunConfig.from_dict({"devices": "cpu:1", "strategy": "ddp", "dist": {"nodes": 3}})
    run = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="ddp"))

    def join(node: int) -> SentEvents:
        connection = SentEvents(run.coordinator)
        run.coordinator.received(connection, Hello(role="node", node=node, host=f"h{node}"))
        return connection

    def has_begun(connection: SentEvents) -> bool:
        return any(isinstance(event, Welcome) for event in connection.sent)

    first = join(0)
    assert has_begun(first)  # the ranks of all hosts meet there
    run.coordinator.received(first, Rendezvous(address="here:1"))
    left = join(1)
    assert not has_begun(left)
    run.coordinator.disconnected(left)
    last = join(2)
    assert not has_begun(last)
    assert not run.coordinator.run.conditions.trouble.is_set()
    again = join(1)
    assert has_begun(again)
    assert has_begun(last)


def test_the_first_host_waits_for_the_ranks_of_all_others(two_hosts: Supervisor) -> None:
    coordinator = two_hosts.coordinator
    agents = [SentEvents(coordinator) for _ in range(2)]
    for node, agent in enumerate(agents):
        coordinator.received(agent, Hello(role="node", node=node, host=f"h{node}"))
    for agent in agents:
        assert not any(isinstance(event, NodeFinished) for event in agents[0].sent)
        coordinator.received(agent, NodeFinished())
    assert isinstance(agents[0].sent[-1], NodeFinished)


@pytest.mark.parametrize("finishes_first", [True, False])
def test_a_script_ends_although_rank_0_waits_for_a_rank_whose_agent_was_killed(
    finishes_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "here")
    config = RunConfig.from_dict(
        {"devices": "cpu:2", "launcher": "env", "script": {"path": __file__}}
    )
    folder = create_run(tmp_path, config, plan=plan_here(config), word="script")
    coordinator = Supervisor(folder).coordinator
    agents = [SentEvents(coordinator) for _ in range(2)]
    for rank, agent in enumerate(agents):
        coordinator.received(agent, Hello(role="task", node=rank, rank=rank, host=f"h{rank}"))
    finish = partial(coordinator.received, agents[0], NodeFinished())
    leave = partial(coordinator.disconnected, agents[1])
    for happens in (finish, leave) if finishes_first else (leave, finish):
        happens()
    assert coordinator.run.conditions.trouble.is_set()
    assert not any(isinstance(event, NodeFinished) for event in agents[0].sent)


@pytest.mark.parametrize(("fails_first", "status"), [(True, "failed"), (False, "stopped")])
@pytest.mark.parametrize("now", [True, False])
def test_a_script_that_is_stopped_after_a_rank_has_failed_has_failed(
    now: bool, fails_first: bool, status: str, tmp_path: Path
) -> None:
    config = RunConfig.from_dict(
        {"devices": "cpu:2", "launcher": "torchrun", "script": {"path": __file__}}
    )
    folder = create_run(tmp_path, config, plan=plan_here(config), word="script")
    coordinator = Supervisor(folder).coordinator
    rank = Connection(coordinator)
    coordinator.received(rank, Hello(rank=1, world_size=2))
    failure = Failure(time=1.0, rank=1, error="ValueError", message="wrong shape")
    stop = partial(coordinator.control.stop, now=now)
    fail = partial(coordinator.received, rank, failure)
    for happens in (fail, stop) if fails_first else (stop, fail):
        happens()
    assert judge(coordinator.run.evidence).status == status


def test_a_run_within_a_requeued_job_begins_without_a_restart(tmp_path: Path) -> None:
    """Only a job that distrain has submitted is requeued during the run."""
    config = RunConfig.from_dict(
        {"devices": "cpu:1", "strategy": "ddp", "dist": {"nodes": 2, "max_restarts": 1}}
    )
    coordinator = Supervisor(
        create_run(tmp_path, config, plan=plan_here(config), word="ddp")
    ).coordinator
    first, second = SentEvents(coordinator), SentEvents(coordinator)
    for node, attempt, agent in ((0, 0, first), (1, 2, second)):
        hello = Hello(role="node", node=node, host=f"h{node}", attempt=attempt)
        coordinator.received(agent, hello)
    coordinator.received(first, Rendezvous(address="here:1"))
    assert isinstance(second.sent[-1], Welcome)
    for rank, attempt in enumerate((2, 0)):
        hello = Hello(rank=rank, world_size=2, host=f"h{rank}", attempt=attempt)
        coordinator.received(Connection(coordinator), hello)
    assert set(coordinator.run.ranks.by_rank) == {0, 1}
    assert coordinator.run.writer.state.attempts == 0


@pytest.mark.parametrize("ended", [[0], [0, 1]])
def test_a_script_whose_ranks_have_all_finished_is_not_interrupted(
    ended: list[int], tmp_path: Path
) -> None:
    config = RunConfig.from_dict(
        {"devices": "cpu:2", "launcher": "torchrun", "script": {"path": __file__}}
    )
    folder = create_run(tmp_path, config, plan=plan_here(config), word="script")
    coordinator = Supervisor(folder).coordinator
    for rank in range(2):
        connection = Connection(coordinator)
        coordinator.received(connection, Hello(rank=rank, world_size=2))
        if rank in ended:
            coordinator.received(connection, Finished(time=1.0, rank=rank, step=8))

    async def stop() -> None:
        coordinator.control.stop()

    asyncio.run(stop())
    run = coordinator.run
    has_ended = len(ended) == 2
    assert run.conditions.interrupt.is_set() == (not has_ended)
    run.evidence.launcher_code = 0
    assert judge(run.evidence).status == ("completed" if has_ended else "stopped")


def test_a_run_that_waits_for_hosts_stops_at_once(two_hosts: Supervisor) -> None:
    two_hosts.coordinator.received(
        Connection(two_hosts.coordinator), Hello(role="node", node=0, host="h0")
    )
    two_hosts.coordinator.control.stop()
    assert two_hosts.coordinator.run.conditions.end_now.is_set()


def test_a_run_that_does_not_queue_starts_even_if_the_queue_is_unusable(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", "/proc/none")
    supervisor.join_queue()
    supervisor.writer.commit()
    ((_, notice),) = Record(supervisor.folder).events()
    assert isinstance(notice, Notice)
    assert notice.text.startswith("queued runs cannot see this run: /proc/none cannot be used")
    assert asyncio.run(supervisor.wait_for_devices())

    async def hold() -> None:
        holding = asyncio.create_task(supervisor.hold_devices())
        while supervisor.lease is None:
            await asyncio.sleep(0.01)
        holding.cancel()

    monkeypatch.setattr(background, "CHECK_S", 0.0)
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", str(supervisor.folder))
    asyncio.run(hold())  # it gets its entry as soon as that is possible
    assert supervisor.lease
    supervisor.lease.close()


def test_a_queued_run_is_stopped_although_the_driver_does_not_answer(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(DeviceLease, "acquire", lambda _: answer.wait())
    supervisor.coordinator.run.evidence.queued = True
    supervisor.join_queue()

    async def stop_while_it_waits() -> bool:
        waiting = asyncio.create_task(supervisor.wait_for_devices())
        await asyncio.sleep(0.05)
        supervisor.coordinator.control.stop()
        return await waiting

    assert not asyncio.run(stop_while_it_waits())
    answer.set()
    assert supervisor.lease
    supervisor.lease.close()


def test_a_program_may_go_on_after_the_ranks_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = f"import time; time.sleep(0.5); open({str(tmp_path / 'end')!r}, 'w')"
    monkeypatch.setattr(command, "launcher_command", lambda *_: [sys.executable, "-c", ends])
    monkeypatch.setattr(launcher_process, "LEAVE_S", 0.0)
    config = RunConfig.from_dict({"script": {"path": "train.py"}, "launcher": "inline"})

    async def run() -> None:
        supervisor = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="train"))
        coordinator = supervisor.coordinator
        rank = Connection(coordinator)
        await supervisor.launcher.start(os.environ)
        coordinator.received(rank, Hello(rank=0, joined=True))
        coordinator.received(rank, Finished(time=0.0, rank=0, step=1))
        await supervisor.launcher.wait()

    asyncio.run(run())
    assert (tmp_path / "end").exists()


def test_a_program_that_ends_while_it_is_about_to_be_interrupted_has_ended_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "import time; time.sleep(0.2)"
    monkeypatch.setattr(command, "launcher_command", lambda *_: [sys.executable, "-c", ends])
    config = RunConfig.from_dict({"script": {"path": "train.py"}, "launcher": "inline"})

    def has_ended(*_: int) -> None:
        raise ProcessLookupError

    async def run() -> None:
        supervisor = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="train"))
        supervisor.coordinator.run.conditions.interrupt.set()
        await supervisor.launcher.start(os.environ)
        await supervisor.launcher.wait()
        assert supervisor.launcher._process.returncode == 0

    monkeypatch.setattr(os, "killpg", has_ended)
    asyncio.run(run())


def test_a_request_to_end_at_once_cuts_the_time_of_a_script_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "launcher_command", lambda *_: ["sleep", "600"])
    config = RunConfig.from_dict({"script": {"path": "train.py"}, "launcher": "inline"})
    supervisor = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="train"))
    is_killed = threading.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        end_now = supervisor.coordinator.run.conditions.end_now

        def end(steps: object) -> None:
            if steps is AT_ONCE:
                os.kill(supervisor.launcher.pid, signal.SIGKILL)
                while is_running(supervisor.launcher.pid, None):
                    time.sleep(0.01)
                is_killed.set()
            else:
                loop.call_soon_threadsafe(end_now.set)
                assert is_killed.wait(60)

        monkeypatch.setattr(launcher_process, "end_descendants", end)
        await supervisor.launcher.start(os.environ)
        await supervisor.launcher.end()

    asyncio.run(run())
    assert supervisor.coordinator.run.evidence.launcher_code == -signal.SIGKILL


def test_a_launcher_is_ended_early_once_all_ranks_of_a_failed_script_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "launcher_command", lambda *_: ["sleep", "600"])
    monkeypatch.setattr(launcher_process, "EXIT_S", 0.5)
    monkeypatch.setattr(launcher_process, "SCRIPT_S", 600.0)
    config = RunConfig.from_dict(
        {"script": {"path": "train.py"}, "launcher": "torchrun", "devices": "cpu:2"}
    )
    supervisor = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="train"))
    coordinator = supervisor.coordinator
    failure = Failure(time=1.0, rank=1, error="ValueError", message="mine")
    connections = {rank: Connection(coordinator) for rank in range(2)}
    for rank, connection in connections.items():
        coordinator.received(connection, Hello(rank=rank, world_size=2))
    coordinator.received(connections[1], failure)
    coordinator.disconnected(connections[1])
    coordinator.run.conditions.trouble.set()

    async def run() -> None:
        await supervisor.launcher.start(os.environ)
        waiting = asyncio.create_task(supervisor.launcher.wait())
        await asyncio.sleep(0.2)
        assert not waiting.done()  # rank 0 still runs
        coordinator.received(connections[0], Finished(time=1.0, rank=0, step=0))
        coordinator.disconnected(connections[0])
        await waiting
        await supervisor.launcher.end()

    asyncio.run(run())
    assert judge(coordinator.run.evidence).reason == "rank 1: ValueError: mine"


def test_the_time_in_the_queue_is_no_time_of_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.from_dict({"report": {"stall_s": 0.5}})
    supervisor = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="train"))
    watch = supervisor.coordinator.run.stall_watch
    were_overdue = []

    async def start(*_: object) -> None:
        were_overdue.append(watch.is_start_overdue)
        raise asyncio.CancelledError

    monkeypatch.setattr(supervisor.launcher, "start", start)
    time.sleep(0.6)
    assert watch.is_start_overdue
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(supervisor.run(ServerAddresses(local="unix:/nowhere")))
    assert were_overdue == [False]


def test_a_rank_that_returns_while_others_train_continues_alone(tmp_path: Path) -> None:
    config = RunConfig.from_dict({"script": {"path": "train.py"}, "launcher": "inline"})
    supervisor = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="train"))
    coordinator = supervisor.coordinator
    other, lost, returned = (Connection(coordinator) for _ in range(3))
    ended = subprocess.Popen(["true"])
    ended.wait()

    def hello(rank: int, pid: int) -> Hello:
        return Hello(rank=rank, world_size=2, pid=pid, joined=True)

    coordinator.received(other, hello(0, os.getpid()))
    coordinator.received(lost, hello(1, ended.pid))  # its end has not been noticed
    for rank, connection in enumerate((other, lost)):
        coordinator.received(connection, make_window(rank, 7))
    coordinator.received(returned, hello(1, os.getpid()))
    for rank, connection in enumerate((other, returned)):
        coordinator.received(connection, make_window(rank, 8 if rank == 0 else 1))
    assert coordinator.run.ranks.by_rank == {0: other, 1: returned}
    assert coordinator.run.evidence.steps == {0: 8, 1: 8}
    assert not coordinator.run.evidence.ended
    supervisor.writer.commit()
    texts = [each.text for _, each in Record(supervisor.folder).events(kinds=["notice"])]  # type: ignore[attr-defined]
    assert texts == [
        "rank 1 was started again by the program: its steps continue after step 7",
    ]


# --- attempts ------------------------------------------------------------------------------------


@pytest.fixture
def scheduled(tmp_path: Path) -> Supervisor:
    config = RunConfig().with_changes({"launcher": "slurm", "slurm.nodes": 2})
    return Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="queued"))


def test_late_events_of_an_earlier_attempt_are_ignored(scheduled: Supervisor) -> None:
    coordinator = scheduled.coordinator
    old_node, old_rank, node, rank = (Connection(coordinator) for _ in range(4))
    coordinator.received(old_node, Hello(role="node", node=1, host="n2"))
    coordinator.received(old_rank, Hello(rank=1, host="n2"))
    coordinator.received(node, Hello(role="node", node=1, host="n2", attempt=1))
    coordinator.received(rank, Hello(rank=1, host="n2", attempt=1))
    coordinator.received(old_node, Exited(time=0.0, rank=1, pid=1, code=-9))
    coordinator.received(old_rank, Failure(time=0.0, rank=1, error="OSError", message="gone"))
    assert coordinator.run.ranks.by_rank == {1: rank}
    assert not coordinator.run.conditions.trouble.is_set()
    assert (coordinator.run.evidence.exits, coordinator.run.evidence.failures) == ({}, {})
    assert scheduled.writer.state.attempts == 1


def test_restarted_ranks_stay_connected_where_one_of_them_had_not_connected_before(
    tmp_path: Path,
) -> None:
    config = RunConfig.from_dict({"devices": "cpu:2", "dist": {"max_restarts": 2}})
    restarted = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="ddp"))
    coordinator = restarted.coordinator
    first, *ranks = (Connection(coordinator) for _ in range(3))
    coordinator.received(first, Hello(rank=1, world_size=2))  # rank 0 hangs before its hello
    for rank, connection in enumerate(ranks):
        coordinator.received(connection, Hello(rank=rank, world_size=2, restart=1))
    assert coordinator.run.ranks.by_rank == dict(enumerate(ranks))
    assert restarted.writer.state.attempts == 1


def test_restarted_ranks_stay_connected_where_none_of_their_host_had_connected_before(
    tmp_path: Path,
) -> None:
    config = RunConfig.from_dict({"devices": "cpu:1", "dist": {"nodes": 2, "max_restarts": 2}})
    restarted = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="ddp"))
    coordinator = restarted.coordinator
    first, second, again = (Connection(coordinator) for _ in range(3))
    coordinator.received(first, Hello(rank=0, world_size=2, host="a"))
    coordinator.disconnected(first)
    coordinator.received(second, Hello(rank=1, world_size=2, host="b", restart=1))
    coordinator.received(again, Hello(rank=0, world_size=2, host="a"))
    assert coordinator.run.ranks.by_rank == {0: again, 1: second}
    assert restarted.writer.state.attempts == 1
    restarted.writer.commit()
    ranks = Record(restarted.folder).ranks()
    assert [info.host for info in ranks] == ["a", "b"]


def test_a_run_ends_once_a_host_gives_up_also_where_another_restarts_its_ranks(
    tmp_path: Path,
) -> None:
    changes = {"devices": "cpu:2", "dist.nodes": 2, "dist.max_restarts": 1}
    config = RunConfig().with_changes(changes)
    restarted = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="ddp"))
    coordinator, node = restarted.coordinator, Connection(restarted.coordinator)
    coordinator.received(node, Hello(role="node", node=1, host="h1"))
    ranks = [Connection(coordinator) for _ in range(4)]
    for rank, connection in enumerate(ranks):
        coordinator.received(connection, Hello(rank=rank, world_size=4, host=f"h{rank // 2}"))
    for rank, connection in enumerate(ranks):
        if rank < 2:
            lost = Failure(time=0.0, rank=rank, error="OSError", message="", secondary=True)
            coordinator.received(connection, lost)
        coordinator.disconnected(connection)
    coordinator.received(node, Exited(time=0.0, rank=3, pid=1, code=-9))
    hello = Hello(rank=0, world_size=4, host="h0", restart=1)
    coordinator.received(Connection(coordinator), hello)
    assert restarted.writer.state.attempts == 0
    assert coordinator.run.conditions.trouble.is_set()
    outcome = judge(coordinator.run.evidence)
    assert outcome.error is not None
    assert (outcome.error.rank, outcome.error.type) == (3, "SIGKILL")


def test_a_host_of_an_earlier_attempt_is_refused(scheduled: Supervisor) -> None:
    coordinator, late = scheduled.coordinator, Connection(scheduled.coordinator)
    coordinator.received(Connection(coordinator), Hello(role="node", node=0, host="n1", attempt=1))
    coordinator.received(late, Hello(role="node", node=0, host="n1"))
    coordinator.received(late, Hello(rank=0, host="n1"))
    assert coordinator.run.ranks.by_rank == {}


def test_a_stop_survives_the_attempt_in_which_it_was_requested(scheduled: Supervisor) -> None:
    coordinator, rank = scheduled.coordinator, SentEvents(scheduled.coordinator)

    async def stopped() -> None:
        coordinator.received(Connection(coordinator), Hello(rank=0, host="n1"))
        coordinator.run.evidence.stop_origin = OUT_OF_TIME
        coordinator.control.stop()
        coordinator.received(rank, Hello(rank=0, host="n1", attempt=1))

    asyncio.run(stopped())
    assert rank.sent == [Stop()]
    assert coordinator.run.evidence.stop_origin == OUT_OF_TIME
    assert scheduled.writer.state.status == "stopping"


def test_a_job_that_appears_after_a_stop_is_ended(scheduled: Supervisor) -> None:
    coordinator = scheduled.coordinator

    async def stopped() -> None:
        coordinator.control.stop()
        coordinator.received(Connection(coordinator), Job(time=0.0, id="7", state="PENDING"))

    asyncio.run(stopped())
    assert coordinator.run.conditions.end_now.is_set()


def test_a_run_that_is_ended_at_once_is_shown_as_stopping(two_hosts: Supervisor) -> None:
    coordinator = two_hosts.coordinator
    coordinator.received(Connection(coordinator), Hello(rank=0, host="n1"))
    coordinator.control.stop(now=True)
    assert coordinator.run.conditions.end_now.is_set()
    assert two_hosts.writer.state.status == "stopping"


def test_ranks_save_when_slurm_signals_a_node(scheduled: Supervisor) -> None:
    coordinator, node, launcher = (
        scheduled.coordinator,
        SentEvents(scheduled.coordinator),
        SentEvents(scheduled.coordinator),
    )
    ranks = [SentEvents(coordinator), SentEvents(coordinator)]

    async def signalled() -> None:
        coordinator.received(launcher, Hello(role="launcher"))
        coordinator.received(node, Hello(role="node", node=0, host="n1"))
        for rank, connection in enumerate(ranks):
            coordinator.received(connection, Hello(rank=rank, host=f"n{rank + 1}"))
        coordinator.received(node, Stop())

    asyncio.run(signalled())
    assert [connection.sent for connection in ranks] == [[Stop()], [Stop()]]
    assert launcher.sent == [Stop(restart=True)]
    assert Stop(now=True) not in node.sent
    assert scheduled.writer.state.status != "stopping"


@pytest.mark.parametrize("are_killed", [True, False])
def test_only_a_person_has_a_stop_of_a_job_forced(are_killed: bool, tmp_path: Path) -> None:
    changes = {"launcher": "slurm", "slurm": {"requeue": True}, "report": {"stop_timeout_s": 0.02}}
    config = RunConfig.from_dict(changes)
    coordinator = Supervisor(
        create_run(tmp_path, config, plan=plan_here(config), word="queued")
    ).coordinator
    node, rank = SentEvents(coordinator), SentEvents(coordinator)
    end_now = coordinator.run.conditions.end_now

    async def preempted() -> None:
        coordinator.received(node, Hello(role="node", node=0, host="n1"))
        coordinator.received(rank, Hello(rank=0, host="n1"))
        coordinator.received(node, Stop())
        if are_killed:  # before they could save
            coordinator.disconnected(rank)
            coordinator.received(SentEvents(coordinator), Job(time=0.0, id="7", state="PENDING"))
        # What is requested is passed on to the next ranks, where they report in files.
        assert coordinator.run.evidence.stop_requested is not are_killed
        await asyncio.sleep(0.1)
        assert not end_now.is_set()
        coordinator.control.stop()
        await asyncio.wait_for(end_now.wait(), 10)

    asyncio.run(preempted())


def test_a_person_stops_a_script_whose_job_is_to_be_requeued(tmp_path: Path) -> None:
    changes = {"launcher": "slurm", "slurm": {"requeue": True}, "script": {"path": "train.py"}}
    config = RunConfig.from_dict(changes)
    coordinator = Supervisor(
        create_run(tmp_path, config, plan=plan_here(config), word="queued")
    ).coordinator
    node, interrupt = SentEvents(coordinator), coordinator.run.conditions.interrupt

    async def preempted() -> None:
        coordinator.received(node, Hello(role="node", node=0, host="n1"))
        coordinator.received(SentEvents(coordinator), Hello(rank=0, host="n1"))
        coordinator.received(node, Stop())
        assert node.sent[-1] == Stop()  # its ranks are interrupted, and the job goes on
        assert not interrupt.is_set()
        coordinator.control.stop()
        assert interrupt.is_set()

    asyncio.run(preempted())


def test_a_signalled_node_ends_at_once_if_its_ranks_cannot_save(scheduled: Supervisor) -> None:
    coordinator, node = scheduled.coordinator, SentEvents(scheduled.coordinator)
    coordinator.received(node, Hello(role="node", node=0, host="n1"))
    coordinator.received(Connection(coordinator), Hello(rank=1, host="n2"))
    coordinator.received(node, Failure(time=0.0, rank=0, error="OSError", message="gone"))
    coordinator.received(node, Stop())
    assert node.sent[-1] == Stop(now=True)


def test_a_job_that_never_started_is_removed_from_the_queue(scheduled: Supervisor) -> None:
    coordinator = scheduled.coordinator
    coordinator.received(
        Connection(coordinator), Job(time=0.0, id="7", state="PENDING", reason="Resources")
    )
    coordinator.control.stop()
    assert coordinator.run.conditions.end_now.is_set()
    assert judge(coordinator.run.evidence).reason == "removed from the queue"


@pytest.mark.parametrize("report", ["auto", "tcp"])
def test_without_a_route_to_the_nodes_the_job_records_itself(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho 'n1.invalid main*'\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    config = RunConfig.from_dict({"launcher": "slurm", "slurm": {"report": report}})
    supervisor = Supervisor(create_run(tmp_path, config, plan=plan_here(config), word="lost"))
    if report == "tcp":
        with pytest.raises(DistrainError, match=r"no address is found for the name n1\.invalid"):
            supervisor.listen_address()
    else:
        assert supervisor.listen_address() == ""


def test_nobody_takes_the_place_of_the_launcher_or_of_a_rank(supervisor: Supervisor) -> None:
    coordinator = supervisor.coordinator
    launcher, rank = SentEvents(coordinator), SentEvents(coordinator)
    coordinator.received(launcher, Hello(role="launcher"))
    coordinator.received(rank, Hello(rank=0, world_size=4))
    coordinator.received(SentEvents(coordinator), Hello(role="launcher"))
    coordinator.received(SentEvents(coordinator), Hello(rank=0, world_size=4, joined=True))
    assert coordinator.run.launcher is launcher
    assert coordinator.run.ranks.by_rank == {0: rank}
    coordinator.disconnected(launcher)
    successor = SentEvents(coordinator)
    coordinator.received(successor, Hello(role="launcher"))
    assert coordinator.run.launcher is successor


def test_a_runs_folder_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunsFolderError, match=r"/ddp: Function not implemented.*--runs-dir"):
        _lock(0, tmp_path / "ddp")


def test_a_run_continues_while_the_file_system_of_its_folder_does_not_answer(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = [OSError(errno.ESTALE, "Stale file handle")] * 20
    gone = [FileNotFoundError(errno.ENOENT, "No such file")] * background.MOST_MISSES
    found = Mock(side_effect=[supervisor.folder.stat(), *stale, supervisor.folder.stat(), *gone])
    monkeypatch.setattr(background, "CHECK_S", 0.0)
    monkeypatch.setattr(Path, "stat", found)
    asyncio.run(background.watch_folder(supervisor.folder, supervisor.coordinator))
    assert found.call_count == 2 + len(stale) + len(gone)
