"""What the supervisor makes of what it hears, without processes; the rest is in tests/e2e."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from runners.config import RunConfig
from runners.events import Hello
from runners.line import Line
from runners.plan import make_plan
from runners.state import create_run
from runners.supervisor import Supervisor


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    config = RunConfig.from_dict({"devices": "cpu:4"})
    return Supervisor(create_run(tmp_path, config, plan=make_plan(config), word="heard"))


def test_only_ranks_of_this_host_are_sampled(supervisor: Supervisor) -> None:
    hosts = {0: socket.gethostname(), 1: "elsewhere", 2: "", 3: socket.gethostname()}
    for rank, host in hosts.items():
        pid = 0 if rank == 3 else os.getpid()
        hello = Hello(rank=rank, world_size=4, pid=pid, host=host)
        supervisor.heard(Line(supervisor), hello)
    assert set(supervisor.pids) == {0, 2}
