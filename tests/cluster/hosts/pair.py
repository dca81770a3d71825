"""Two hosts and the run that is started on the first."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from itertools import permutations
from typing import Any

import psutil

from distrain.runners.protocol.events import Event, Notice
from tests.support import ROOT
from tests.support.commands import DISTRAIN, ENDLESS, Commands, dotted, sets
from tests.support.namespaces import Host
from tests.support.runs import wait_until

FAULTY = ROOT / "tests" / "integration" / "runs" / "faulty.py"
TWO = {"dist.nodes": 2, "devices": "cpu:1", "train.threads": 1, "report.sample_s": 0.5}
RUN, JOIN = "run.log", "join.log"


class Pair(Commands):
    """The commands on two hosts, which have half of the ranks each."""

    def __init__(self, hosts: list[Host]) -> None:
        self.first, self.second = hosts
        super().__init__(self.first.runs, ranks=2)
        for host in hosts:
            shutil.copy(FAULTY, host.folder)

    @property
    def devices(self) -> str:
        return f"cpu:{self.ranks // 2}"

    def name_as_on_debian(self) -> None:
        """Let each host know the other's name; its own means its loopback interface there."""
        for host, other in permutations((self.first, self.second)):
            lines = f"127.0.1.1 {host.name}\n{other.address} {other.name}\n"
            (host.folder / "hosts").write_text(f"127.0.0.1 localhost\n{lines}")

    def begin(self, *more: str, **changes: Any) -> subprocess.Popen[bytes]:
        """Start `distrain run` on the first host, with keys changed (`__` for the dot)."""
        settings = {**TWO, "devices": self.devices, **dotted(changes)}
        return self.distrain(self.first, RUN, "run", "ddp", *sets(settings), *more)

    def distrain(
        self, host: Host, log: str, *words: str, **variables: str
    ) -> subprocess.Popen[bytes]:
        self.started.append(host.start(log, *DISTRAIN, *words, **variables))
        return self.started[-1]

    def run_to_end(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.first.run(*DISTRAIN, *words)

    def command(self) -> list[str]:
        """Return the command that the first host prints for the second one; copy the token."""
        instruction = r"distrain (join .*)\n.*copy the file token from (.*)"
        found = wait_until(lambda: re.search(instruction, self.first.log_text(RUN)))
        shutil.copy(found[2], self.second.folder / "token")
        return shlex.split(found[1])

    def join(self, *more: str) -> subprocess.Popen[bytes]:
        return self.distrain(self.second, JOIN, *self.command(), "--devices", self.devices, *more)

    def train(self, **changes: Any) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        """Start an endless run on both hosts and wait for its first steps."""
        both = self.begin(**ENDLESS, **changes), self.join()
        self.assert_continues(both)
        return both

    @property
    def output(self) -> str:
        """Return the output of the commands on both hosts."""
        logs = ((self.first, RUN), (self.second, JOIN))
        return "\n".join(host.log_text(log) for host, log in logs if (host.folder / log).exists())

    def events(self) -> list[Event]:
        return [event for _, event in self.record.events()]

    def notices(self) -> str:
        return "\n".join(event.text for event in self.events() if isinstance(event, Notice))

    def rank(self, number: int) -> psutil.Process:
        """Return the process of a rank, on either host."""
        for process in [*self.first.processes(), *self.second.processes()]:
            with suppress(psutil.Error):
                variables = process.environ()  # Horovod's launcher sets its own variable
                rank = variables.get("HOROVOD_RANK", variables.get("RANK"))
                if rank == str(number) and "distrain.runners.training.worker" in process.cmdline():
                    return process
        raise AssertionError(f"there is no rank {number}")

    def assert_nothing_left(self) -> None:
        for host in (self.first, self.second):
            wait_until(lambda host=host: not host.processes(), 30)
