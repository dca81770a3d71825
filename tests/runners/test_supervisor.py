"""What the supervisor makes of what it hears, without processes; the rest is in tests/e2e."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from pathlib import Path

import pytest

from runners.config import RunConfig
from runners.conversation import Conversation
from runners.errors import DistrainError
from runners.events import (
    Attempt,
    Event,
    Exited,
    Failure,
    GpuSample,
    Hello,
    Job,
    Meeting,
    Notice,
    Phase,
    RankSample,
    Sampled,
    Stop,
)
from runners.line import Line
from runners.plan import make_plan
from runners.record import Record
from runners.state import RunState, create_run, read_state
from runners.supervisor import Supervisor
from runners.verdict import judge


class Spoken(Line):
    """A connection that keeps what it is told."""

    def __init__(self, listener: Conversation) -> None:
        super().__init__(listener)
        self.told: list[Event] = []

    def send(self, event: Event) -> None:
        self.told.append(event)


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    config = RunConfig.from_dict({"devices": "cpu:4"})
    return Supervisor(create_run(tmp_path, config, plan=make_plan(config), word="heard"))


def test_a_full_disk_neither_loses_a_rank_nor_the_state(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, state: RunState) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("runners.writer.write_state", full)
        supervisor.set_state(status="stopping")
        supervisor.set_state(reason="as asked")
    assert read_state(supervisor.folder).status == "starting"
    supervisor.set_state()
    state = read_state(supervisor.folder)
    assert (state.status, state.reason) == ("stopping", "as asked")


def test_a_rank_that_has_gone_is_not_sampled_any_more(supervisor: Supervisor) -> None:
    link = Line(supervisor.talk)
    supervisor.talk.heard(link, Hello(rank=0, world_size=4, pid=os.getpid()))
    supervisor.talk.left(link)
    assert supervisor.talk.pids == {}


def test_only_ranks_of_this_host_are_sampled(supervisor: Supervisor) -> None:
    hosts = {0: socket.gethostname(), 1: "elsewhere", 2: "", 3: socket.gethostname()}
    for rank, host in hosts.items():
        pid = 0 if rank == 3 else os.getpid()
        hello = Hello(rank=rank, world_size=4, pid=pid, host=host)
        supervisor.talk.heard(Line(supervisor.talk), hello)
    assert set(supervisor.talk.pids) == {0, 2}


@pytest.fixture
def of_two_hosts(tmp_path: Path) -> Supervisor:
    config = RunConfig.from_dict({"devices": "cpu:1", "strategy": "ddp", "dist": {"nodes": 2}})
    return Supervisor(create_run(tmp_path, config, plan=make_plan(config), word="heard"))


@pytest.mark.parametrize(
    "event",
    [
        Attempt(time=1.0, number=1, step=0, lost=5),
        Job(time=1.0, id="7", state="PENDING"),
        Phase(time=1.0, rank=4, phase="saving"),
        Exited(time=1.0, rank=-1, pid=3, code=9),
    ],
)
def test_what_nobody_here_can_say_is_not_heard(
    event: Event, supervisor: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor.talk.heard(Line(supervisor.talk), event)
    supervisor.writer.commit()
    assert not list(Record(supervisor.folder).events())
    assert supervisor.writer.state.job is None
    assert "connection refused: " in capsys.readouterr().err


def test_only_nodes_tell_of_hosts_and_only_what_the_run_has(of_two_hosts: Supervisor) -> None:
    talk = of_two_hosts.talk
    first, second, viewer = (Line(talk) for _ in range(3))
    talk.heard(first, Hello(role="node", node=0, host="h0"))
    talk.heard(second, Hello(role="node", host="h1"))
    talk.heard(viewer, Hello(role="viewer"))
    gpus = [GpuSample(time=1.0, gpu=number, uuid="u", name="n") for number in (-5, 3, 1005)]
    ranks = [RankSample(time=1.0, rank=rank, cpu=1.0, rss=1.0, processes=1) for rank in (1, 77)]
    said = Sampled(gpus=gpus, ranks=ranks)
    assert talk.nodes.samples(viewer, said) == []
    heard = talk.nodes.samples(second, said)
    assert [each.gpu for each in heard if isinstance(each, GpuSample)] == [1003]
    assert [each.rank for each in heard if isinstance(each, RankSample)] == [1]
    for link in (viewer, second):
        talk.heard(link, Meeting(place="elsewhere:1"))
        assert talk.nodes._meeting == ""
    talk.heard(first, Meeting(place="here:1"))
    assert talk.nodes._meeting == "here:1"


def test_a_run_that_waits_for_hosts_stops_at_once(of_two_hosts: Supervisor) -> None:
    of_two_hosts.talk.heard(Line(of_two_hosts.talk), Hello(role="node", node=0, host="h0"))
    of_two_hosts.talk.stop()
    assert of_two_hosts.talk.end_now.is_set()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            {0: 3, 1: 3, 2: 2, 3: 3},
            "furthest behind is rank 2 (rank 0 at step 3, rank 1 at step 3, ",
        ),
        ({0: 3, 1: 3, 2: 3, 3: 3}, "all ranks are at step 3"),
        ({}, "all ranks are at step 0"),
    ],
)
def test_a_stall_names_a_rank_only_where_one_is_behind(
    steps: dict[int, int], said: str, supervisor: Supervisor
) -> None:
    supervisor.talk.phases = dict.fromkeys(range(4), "training")
    supervisor.talk.seen.steps = steps
    supervisor.talk.progress = time.monotonic() - 100
    supervisor.talk.look_for_stall()
    supervisor.writer.commit()
    ((_, notice),) = Record(supervisor.folder).events()
    assert isinstance(notice, Notice)
    assert notice.text.startswith(f"no step has ended for 100 s; {said}")


def test_a_run_that_does_not_queue_starts_also_where_claims_cannot_be_made(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRAIN_CLAIMS_DIR", "/proc/none")
    supervisor.make_claim()
    supervisor.writer.commit()
    ((_, notice),) = Record(supervisor.folder).events()
    assert isinstance(notice, Notice)
    assert notice.text.startswith("queued runs will not see this one: the queue cannot use /proc")
    assert asyncio.run(supervisor.may_start())


# --- attempts ------------------------------------------------------------------------------------


@pytest.fixture
def scheduled(tmp_path: Path) -> Supervisor:
    config = RunConfig().with_changes({"launcher": "slurm", "slurm.nodes": 2})
    return Supervisor(create_run(tmp_path, config, plan=make_plan(config), word="queued"))


def test_what_an_old_attempt_says_late_is_not_heard(scheduled: Supervisor) -> None:
    talk = scheduled.talk
    old_node, old_rank, node, rank = (Line(talk) for _ in range(4))
    talk.heard(old_node, Hello(role="node", node=1, host="n2"))
    talk.heard(old_rank, Hello(rank=1, host="n2"))
    talk.heard(node, Hello(role="node", node=1, host="n2", attempt=1))
    talk.heard(rank, Hello(rank=1, host="n2", attempt=1))
    talk.heard(old_node, Exited(time=0.0, rank=1, pid=1, code=-9))
    talk.heard(old_rank, Failure(time=0.0, rank=1, error="OSError", message="gone"))
    assert talk.links == {1: rank}
    assert not talk.trouble.is_set()
    assert (talk.seen.exits, talk.seen.failures) == ({}, {})
    assert scheduled.writer.state.attempts == 1


def test_a_host_that_comes_back_from_an_old_attempt_is_refused(scheduled: Supervisor) -> None:
    talk, late = scheduled.talk, Line(scheduled.talk)
    talk.heard(Line(talk), Hello(role="node", node=0, host="n1", attempt=1))
    talk.heard(late, Hello(role="node", node=0, host="n1"))
    talk.heard(late, Hello(rank=0, host="n1"))
    assert talk.links == {}


def test_a_stop_outlives_the_attempt_that_it_was_asked_of(scheduled: Supervisor) -> None:
    talk, rank = scheduled.talk, Spoken(scheduled.talk)

    async def stopped() -> None:
        talk.heard(Line(talk), Hello(rank=0, host="n1"))
        talk.stop()
        talk.heard(rank, Hello(rank=0, host="n1", attempt=1))

    asyncio.run(stopped())
    assert rank.told == [Stop()]
    assert scheduled.writer.state.status == "stopping"


def test_a_job_that_turns_up_after_a_stop_is_ended(scheduled: Supervisor) -> None:
    talk = scheduled.talk

    async def stopped() -> None:
        talk.stop()
        talk.heard(Line(talk), Job(time=0.0, id="7", state="PENDING"))

    asyncio.run(stopped())
    assert talk.end_now.is_set()


def test_a_node_that_slurm_tells_to_end_has_the_ranks_save(scheduled: Supervisor) -> None:
    talk, node, launcher = scheduled.talk, Spoken(scheduled.talk), Spoken(scheduled.talk)
    ranks = [Spoken(talk), Spoken(talk)]

    async def told() -> None:
        talk.heard(launcher, Hello(role="launcher"))
        talk.heard(node, Hello(role="node", node=0, host="n1"))
        for rank, link in enumerate(ranks):
            talk.heard(link, Hello(rank=rank, host=f"n{rank + 1}"))
        talk.heard(node, Stop())

    asyncio.run(told())
    assert [link.told for link in ranks] == [[Stop()], [Stop()]]
    assert launcher.told == [Stop(again=True)]
    assert Stop(now=True) not in node.told
    assert scheduled.writer.state.status != "stopping"


def test_a_node_whose_ranks_cannot_save_any_more_ends_at_once(scheduled: Supervisor) -> None:
    talk, node = scheduled.talk, Spoken(scheduled.talk)
    talk.heard(node, Hello(role="node", node=0, host="n1"))
    talk.heard(Line(talk), Hello(rank=1, host="n2"))
    talk.heard(node, Failure(time=0.0, rank=1, error="OSError", message="gone"))
    talk.heard(node, Stop())
    assert node.told[-1] == Stop(now=True)


def test_a_job_that_never_began_is_taken_out_of_the_queue(scheduled: Supervisor) -> None:
    talk = scheduled.talk
    talk.heard(Line(talk), Job(time=0.0, id="7", state="PENDING", reason="Resources"))
    talk.stop()
    assert talk.end_now.is_set()
    assert judge(talk.seen).reason == "taken out of the queue on request, never started"


@pytest.mark.parametrize("report", ["auto", "tcp"])
def test_a_login_node_that_knows_no_way_to_the_nodes_leaves_the_record_to_the_job(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho 'n1.invalid main*'\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    config = RunConfig.from_dict({"launcher": "slurm", "slurm": {"report": report}})
    supervisor = Supervisor(create_run(tmp_path, config, plan=make_plan(config), word="lost"))
    if report == "tcp":
        with pytest.raises(DistrainError, match=r"no address is found for the name n1\.invalid"):
            supervisor.listens_at()
    else:
        assert supervisor.listens_at() == ""
