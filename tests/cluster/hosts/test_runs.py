"""One run on two hosts that share no file system.

A failure on one host is reported on the first one, ends the run on all hosts and leaves no process.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distrain.runners.protocol.events import Attempt
from tests.cluster.hosts.pair import JOIN, RUN, TWO, Pair
from tests.support.commands import DISTRAIN, ENDLESS, sets
from tests.support.namespaces import Host, network
from tests.support.programs import SAVES, SUM
from tests.support.runs import wait_until

SAVES_IN_RUN = """
import distrain
run = distrain.init()
name = f"{run.rank}.pt"
if run.previous_dir:
    print(f"rank {run.rank} continues from", (run.previous_dir / name).read_text())
else:
    print(f"rank {run.rank} begins")
(run.dir / name).write_text(str(run.rank))
"""

BEHIND = """
import datetime, time
class Behind(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) - datetime.timedelta(days=1)
    def __reduce_ex__(self, protocol):  # the other host has no such class
        return eval, (f"__import__('datetime').datetime.fromisoformat('{self.isoformat()}')",)
datetime.datetime = Behind
now = time.time
time.time = lambda: now() - 86_400
"""


@pytest.mark.parametrize("epochs", [0, 2])
def test_two_hosts_evaluate_as_one_process(pair: Pair, epochs: int) -> None:
    pair.ranks = 4
    run = pair.begin(train__epochs=epochs)
    join = pair.join()
    assert (pair.exit_code(run), pair.exit_code(join)) == (0, 0), pair.output
    expected, found = pair.evaluate_alone(train__epochs=epochs), pair.evaluation()
    assert found["samples"] == expected["samples"] == 360
    if epochs:
        assert found == pytest.approx(expected, rel=1e-3)
    else:  # with the same weights the counts are equal
        assert found["top1"] == expected["top1"]
        assert found["top5"] == expected["top5"]
    assert pair.record.state.hosts == ["h0", "h1"]
    assert {rank.rank: rank.host for rank in pair.record.ranks()} == {
        0: "h0", 1: "h0", 2: "h1", 3: "h1",
    }  # fmt: skip
    assert (
        "h1: ranks communicate over eth0 (10.213.65.3), which leads to 10.213.65.2:"
        in pair.notices()
    )
    assert pair.record.state.provenance["environment"]["GLOO_SOCKET_IFNAME"] == "eth0"
    pair.assert_nothing_left()
    assert not list((pair.second.folder / "tmp").glob("distrain-*"))
    assert not list(pair.second.runs.iterdir())


@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_rank_is_named_with_its_host(pair: Pair, number: int) -> None:
    pair.ranks = 4
    both = pair.train()
    pair.rank(number).kill()
    assert [pair.exit_code(process) for process in both] == [1, 1]
    error = pair.record.state.error
    assert error is not None
    assert (error.rank, error.type) == (number, "SIGKILL")
    for log in (pair.first.log_text(RUN), pair.second.log_text(JOIN)):
        assert f"rank {number} on h{number // 2}: killed by SIGKILL" in log
    pair.assert_nothing_left()


@pytest.mark.parametrize("name", ["h1", "h0"], ids=["other names", "the same name"])
def test_a_frozen_rank_of_another_host_is_named_and_read_there(pair: Pair, name: str) -> None:
    pair.second.run("hostname", name)
    both = pair.train(report__stall_s=2)
    frozen = pair.rank(1)
    frozen.suspend()

    def is_named() -> bool:  # once the others, which wait for it, have answered
        stall = pair.record.state.stall
        return stall is not None and stall.ranks == [1]

    wait_until(is_named, 60)
    stall = pair.record.state.stall
    assert stall is not None
    assert stall.first.condition == "stopped by a signal"
    shown = pair.run_to_end("stacks", "latest").stdout
    assert re.search(r"rank 1\b", shown), shown
    frozen.resume()
    wait_until(lambda: pair.record.state.stall is None, 60)
    pair.run_to_end("stop", "latest", "--wait")
    assert [pair.exit_code(process) for process in both] == [130, 130], pair.output


@pytest.mark.parametrize(
    ("number", "code", "how"),
    [(signal.SIGKILL, 137, "killed or has failed"), (signal.SIGTERM, 1, "ended by SIGTERM")],
)
def test_a_host_whose_agent_somebody_ends_is_named(
    pair: Pair, number: signal.Signals, code: int, how: str
) -> None:
    both = pair.train()
    (agent,) = [
        each
        for each in pair.second.processes()
        if "distrain.runners.launchers.joined_host" in each.cmdline()
    ]
    agent.send_signal(number)
    assert [pair.exit_code(process) for process in both] == [1, code]
    reason = f"h1 left the run: the process that starts its ranks was {how}; "
    assert pair.record.state.reason.startswith(reason)
    if number == signal.SIGKILL:
        reason = "the joining process was killed by SIGKILL"
    assert reason in pair.second.log_text(JOIN)
    pair.assert_nothing_left()


def test_a_killed_launcher_is_reported_in_one_sentence_on_both_hosts(pair: Pair) -> None:
    both = pair.train()
    (launcher,) = (
        each
        for each in pair.first.processes()
        if "distrain.runners.launchers.node" in each.cmdline()
    )
    launcher.kill()
    assert [pair.exit_code(process) for process in both] == [1, 1]
    error = pair.record.state.error
    assert error is not None
    assert error.type == "LauncherFailed"
    joined = pair.second.log_text(JOIN)
    assert joined.splitlines()[-1].endswith(
        "the launcher was killed by SIGKILL while its ranks ran"
    )
    assert "Traceback" not in joined
    pair.assert_nothing_left()


def test_a_run_survives_a_link_that_is_cut_for_seconds(pair: Pair) -> None:
    both = pair.train()
    pair.second.cut()
    with pytest.raises(subprocess.TimeoutExpired):
        both[0].wait(8)
    pair.second.restore()
    pair.assert_continues(both)
    pair.run_to_end("stop", "latest", "--wait")
    assert [pair.exit_code(process) for process in both] == [130, 130], pair.output


def test_a_host_whose_clock_is_a_day_behind_takes_part(pair: Pair) -> None:
    (pair.second.folder / "sitecustomize.py").write_text(BEHIND)
    run = pair.begin(train__epochs=1)
    variables = {"PYTHONPATH": str(pair.second.folder)}
    join = pair.distrain(pair.second, JOIN, *pair.command(), "--devices", pair.devices, **variables)
    assert (pair.exit_code(run), pair.exit_code(join)) == (0, 0), pair.output
    assert pair.evaluation()["samples"] == 360


def test_a_disconnected_host_is_named_and_the_run_ends(pair: Pair) -> None:
    run, join = pair.train()
    pair.second.cut()
    assert pair.exit_code(run) == 1
    state = pair.record.state
    assert "h1" in state.reason
    assert re.search(r"since \d\d:\d\d:\d\d", state.reason), state.reason
    assert pair.exit_code(join) == 1
    assert "does not answer" in pair.second.log_text(JOIN)
    pair.assert_nothing_left()


def test_waiting_for_a_second_host_has_a_time_limit(pair: Pair) -> None:
    run = pair.begin(dist__join_timeout_s=5)
    assert pair.command()
    wait_until(lambda: "1 of 2 hosts" in " ".join(pair.record.state.waiting_for))
    assert pair.exit_code(run) == 1
    assert "1 host did not join" in pair.record.state.reason
    assert "1 host did not join" in pair.first.log_text(RUN)
    pair.assert_nothing_left()


def test_a_wrong_token_and_a_host_without_enough_devices_are_refused(pair: Pair) -> None:
    pair.ranks = 4
    pair.begin()
    command = pair.command()
    (pair.second.folder / "token").write_text("guessed")
    join = pair.distrain(pair.second, JOIN, *command)
    assert pair.exit_code(join) == 1
    assert "token" in pair.second.log_text(JOIN)
    assert pair.second.log_text(JOIN).count("\n") <= 2, pair.second.log_text(JOIN)
    assert "1 of 2 hosts" in " ".join(pair.record.state.waiting_for)
    join = pair.distrain(pair.second, JOIN, *pair.command(), "--devices", "cpu:1")
    assert pair.exit_code(join) == 2
    assert "this host has 1 CPU rank, but the run needs 2" in pair.second.log_text(JOIN)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("{first}:9", "no supervisor listens at {first}:9"),
        ("10.213.65.250:9", "cannot reach 10.213.65.250:9"),
        ("h0:9", "no address is found for the name h0"),
        ("{first}", "HOST:PORT"),
    ],
)
def test_an_address_without_a_run_is_reported_in_one_sentence(
    pair: Pair, address: str, sentence: str
) -> None:
    known = {"first": pair.first.address}
    (pair.second.folder / "token").write_text("any")
    join = pair.distrain(
        pair.second, JOIN, "join", address.format(**known), "--token-file", "token"
    )
    assert pair.exit_code(join, 60) in (1, 2)
    assert sentence.format(**known) in pair.second.log_text(JOIN)
    assert "Traceback" not in pair.second.log_text(JOIN)


def test_a_third_host_is_refused_by_a_complete_run(
    namespaces_available: None, tmp_path: Path
) -> None:
    with network(tmp_path / "hosts", 3) as (*hosts, third), Pair(hosts) as pair:
        both = pair.train()
        shutil.copy(pair.second.folder / "token", third.folder)
        late = pair.distrain(third, JOIN, *pair.command())
        assert pair.exit_code(late) == 1
        assert "no free place: it has 2 hosts" in third.log_text(JOIN)
        pair.assert_continues(both)


def test_a_stop_ends_both_hosts_at_one_step_with_a_checkpoint(pair: Pair) -> None:
    both = pair.train()
    pair.run_to_end("stop", "latest")
    assert [pair.exit_code(process) for process in both] == [130, 130], pair.output
    record = pair.record
    assert "stopped on request after step" in record.state.reason
    assert record.last_checkpoint is not None
    pair.assert_nothing_left()


@pytest.mark.parametrize("happened", ["the token was removed", "the reader of the output exited"])
def test_ctrl_c_on_a_joined_host_stops_the_run_whatever_happened_there(
    pair: Pair, happened: str
) -> None:
    run = pair.begin(**ENDLESS)
    command = shlex.join([*DISTRAIN, *pair.command(), "--devices", pair.devices])
    if happened == "the reader of the output exited":
        command += " 2>&1 | head -n 3"
    pair.started.append(pair.second.start(JOIN, "sh", "-c", command))
    pair.assert_continues([run])
    if happened == "the token was removed":
        (pair.second.folder / "token").unlink()
    _interrupt(pair.second)
    assert pair.exit_code(run) == 130, pair.output
    if happened == "the token was removed":
        assert pair.exit_code(pair.started[-1]) == 130
    assert "stopped on request after step" in pair.record.state.reason
    assert pair.record.last_checkpoint is not None
    pair.assert_nothing_left()


def test_ctrl_c_on_a_waiting_host_removes_only_this_host(pair: Pair) -> None:
    run = pair.begin(dist__nodes=3)
    wait_until(lambda: "h0: ranks communicate" in pair.first.log_text(RUN))
    join = pair.join()
    wait_until(lambda: "joined run" in pair.second.log_text(JOIN))
    _interrupt(pair.second)
    assert pair.exit_code(join) == 130
    joined = pair.second.log_text(JOIN)
    assert joined.splitlines()[-1].endswith("this host has left the run, on Ctrl-C")
    wait_until(lambda: pair.record.state.waiting_for[0].startswith("2 of 3 hosts"))
    stop = pair.run_to_end("stop", "latest", "--wait")
    assert "it ends before it has begun to train" in stop.stdout + stop.stderr
    assert pair.exit_code(run) == 130
    pair.assert_nothing_left()


def _interrupt(host: Host) -> None:
    (join,) = [each for each in host.processes() if "join" in each.cmdline()]
    join.send_signal(signal.SIGINT)


def test_the_other_host_ends_with_the_supervisor(pair: Pair) -> None:
    _, join = pair.train()
    (supervisor,) = [
        each
        for each in pair.first.processes()
        if "distrain.runners.supervision.supervisor" in each.cmdline()
    ]
    supervisor.kill()
    assert pair.exit_code(join, 60) == 1
    assert "the first host has ended" in pair.second.log_text(JOIN)
    wait_until(lambda: not pair.second.processes(), 30)


def test_the_other_host_ends_when_the_first_crashes(pair: Pair) -> None:
    _, join = pair.train()
    pair.first.crash()
    assert pair.exit_code(join) == 1
    wait_until(lambda: not pair.second.processes(), 30)


def test_restarted_ranks_continue_from_the_last_checkpoint(pair: Pair) -> None:
    both = pair.train(dist__max_restarts=1, checkpoint__every_steps=20)
    wait_until(lambda: pair.step > 30)
    pair.rank(1).kill()
    wait_until(lambda: pair.record.state.attempts == 1 or both[0].poll() is not None)
    attempt = wait_until(lambda: next((e for e in pair.events() if isinstance(e, Attempt)), None))
    assert attempt.step >= 20
    wait_until(lambda: pair.step > attempt.lost + 10 or both[0].poll() is not None)
    assert both[0].poll() is None, pair.output
    pair.run_to_end("stop", "latest", "--wait")
    assert [pair.exit_code(process) for process in both] == [130, 130]
    assert len(list(pair.first.runs.iterdir())) == 1


@pytest.mark.parametrize("survives", [True, False])
def test_ranks_that_a_scheduler_starts_on_each_host_are_one_run(pair: Pair, survives: bool) -> None:
    pair.name_as_on_debian()
    settings = {"launcher": "env", "train.epochs": 1, **({} if survives else ENDLESS)}
    address = pair.first.name if survives else pair.first.address
    rendezvous = {"WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": "29500"}
    both = [
        pair.distrain(host, log, "run", "ddp", *sets(settings), RANK=rank, **rendezvous)
        for rank, host, log in (("0", pair.first, RUN), ("1", pair.second, JOIN))
    ]
    if not survives:
        wait_until(lambda: len(pair.record.latest()) == 2 or both[0].poll() is not None)
        pair.rank(1).kill()
    assert [pair.exit_code(process) for process in both] == ([0, 0] if survives else [1, 1]), (
        pair.output
    )
    if survives:
        assert pair.evaluation() == pytest.approx(pair.evaluate_alone(train__epochs=1), rel=1e-3)
    else:
        assert "rank 1 on h1: killed by SIGKILL" in pair.second.log_text(JOIN)
    assert pair.record.state.hosts == ["h0", "h1"]
    assert {rank.rank: rank.host for rank in pair.record.ranks()} == {0: "h0", 1: "h1"}
    notices = pair.notices()
    assert "h0: ranks communicate over eth0 (10.213.65.2), which leads to 10.213.65.2:" in notices
    assert f"h1: ranks communicate over eth0 (10.213.65.3), which leads to {address}:" in notices
    pair.assert_nothing_left()
    assert not list(pair.second.runs.iterdir())


def test_node_rank_in_the_config_works_like_join(pair: Pair) -> None:
    pair.name_as_on_debian()
    for host in (pair.first, pair.second):
        (host.folder / "secret").write_text("a word that both know")
    settings = {**TWO, "train.epochs": 1, "dist.rendezvous": f"{pair.first.name}:4711"}
    both = [
        pair.distrain(
            host,
            log,
            "run",
            "ddp",
            *sets({**settings, "dist.node_rank": number}),
            DISTRAIN_TOKEN_FILE="secret",
        )
        for number, (host, log) in enumerate(((pair.first, RUN), (pair.second, JOIN)))
    ]
    assert [pair.exit_code(process) for process in both] == [0, 0], pair.output
    assert pair.evaluation()["samples"] == 360


# --- a user's script ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "restarts"),
    [(SUM, 0), (SUM, 1), (SAVES, 0)],
    ids=["to its end", "may be restarted", "stopped"],
)
def test_a_script_runs_on_both_hosts(pair: Pair, program: str, restarts: int) -> None:
    if restarts:  # torchrun numbers the hosts by their addresses, and then in another order
        pair.first, pair.second = pair.second, pair.first
    for host in (pair.first, pair.second):
        (host.folder / "train.py").write_text(program)
    place = sets({"dist.nodes": 2, "dist.max_restarts": restarts, "devices": pair.devices})
    run = pair.distrain(pair.first, RUN, "run", *place, "train.py", "--lr", "1")
    join = pair.join()
    if program is SUM:
        assert (pair.exit_code(run), pair.exit_code(join)) == (0, 0), pair.output
        assert pair.output.count("sum 3 --lr 1") >= 2
    else:
        logs = pair.record.dir / "logs"
        wait_until(lambda: sum("ready" in log.read_text() for log in logs.glob("rank-*")) == 2)
        assert pair.run_to_end("stop", "latest").returncode == 0
        assert pair.exit_code(run) == 130, pair.output
        assert pair.exit_code(join) == 130, pair.output
        assert sum("saved" in log.read_text() for log in logs.glob("rank-*")) == 2
    pair.assert_nothing_left()


@pytest.mark.parametrize("program", ["train.py", "./train.sh"])
def test_what_a_script_saves_stays_on_each_host_for_a_resumed_run(pair: Pair, program: str) -> None:
    for host in (pair.first, pair.second):
        (host.folder / "train.py").write_text(SAVES_IN_RUN)
        (host.folder / "train.sh").write_text(f"#!/bin/sh\n{sys.executable} train.py\n")
        (host.folder / "train.sh").chmod(0o755)
    place = sets({"dist.nodes": 2, "devices": pair.devices})
    for words, expected in (
        (("run", *place, "--name", "first", program), ["rank 0 begins", "rank 1 begins"]),
        (("resume", "first"), ["rank 0 continues from 0", "rank 1 continues from 1"]),
    ):
        run = pair.distrain(pair.first, RUN, *words)
        join = pair.join()
        assert (pair.exit_code(run), pair.exit_code(join)) == (0, 0), pair.output
        logs = sorted(max(pair.runs.iterdir()).glob("logs/rank-*"))  # ids begin with the time
        printed = [log.read_text().strip() for log in logs]
        assert printed == expected
    assert {file.name for file in pair.second.runs.glob("*/*")} == {"1.pt"}
