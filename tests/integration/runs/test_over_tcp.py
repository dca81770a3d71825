"""With an address to listen on, ranks report over TCP; otherwise nothing changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psutil
import pytest

from distrain import Run
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import TOKEN_FILE_NAME, send_to_supervisor
from distrain.runners.protocol.events import Stop
from tests.support.runs import assert_nothing_left, processes_of, steps_of, wait_until

Start = Callable[..., Run]
OVER_TCP = {"report__listen": "127.0.0.1"}


@pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
def test_ranks_report_over_tcp_with_a_token_that_is_never_shown(
    launcher: str, start: Start
) -> None:
    run = start(**OVER_TCP, launcher=launcher, train__epochs=1000, task__args={"pace": 0.01})
    token = wait_until(lambda: (run.record.dir / TOKEN_FILE_NAME).read_text())
    wait_until(lambda: steps_of(run).get(1, 0) > 2)
    processes = processes_of(run.record.dir)
    (server,) = {
        f"tcp:{link.laddr.ip}:{link.laddr.port}"
        for link in psutil.Process(run.record.state.supervisor_pid).net_connections("tcp")
        if link.status == "LISTEN"
    }
    assert server.startswith("tcp:127.0.0.1:")
    assert not any(token in word for each in processes for word in each.cmdline())
    # and a client without it cannot stop the run
    with contextlib.suppress(ConnectionError):  # it may close the connection while we send
        send_to_supervisor(server, Stop(now=True), token="guessed")
    before = steps_of(run)[1]
    wait_until(lambda: steps_of(run)[1] > before + 5)
    assert "connection refused" in (run.record.dir / "logs" / "supervisor.log").read_text()
    run.stop()
    assert run.wait(120)["status"] == "stopped"
    assert_nothing_left(run)
    written = [file for file in run.record.dir.rglob("*") if file.is_file()]
    assert not [file for file in written if token.encode() in file.read_bytes()]


def test_no_other_host_can_connect_to_two_runs_on_one_host(start: Start) -> None:
    """The stores of torch have no passwords, and torchrun's agent unpickles what is in its own.

    The two runs train at once and do not interfere.
    """
    endless = {"train__epochs": 1000, "task__args": {"pace": 0.01}}
    runs = [start(launcher=launcher, **endless) for launcher in ("spawn", "torchrun")]
    for run in runs:
        wait_until(lambda run=run: steps_of(run).get(1, 0) > 2)
        sockets = [
            link for each in processes_of(run.record.dir) for link in each.net_connections("tcp")
        ]
        assert {link.laddr.ip for link in sockets if link.status == "LISTEN"} == {"127.0.0.1"}
    for run in runs:
        run.stop()
    assert [run.wait(120)["status"] for run in runs] == ["stopped", "stopped"]


def test_an_address_of_another_host_is_refused_at_once(start: Start) -> None:
    with pytest.raises(DistrainError, match=r"cannot listen on 192.0.2.1"):
        start(report__listen="192.0.2.1")
