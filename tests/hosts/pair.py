"""Two hosts and the run that is begun on the first."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from runners.events import Event, Notice
from tests.commands import DISTRAIN, ENDLESS, Commands, dotted, sets
from tests.e2e.conftest import wait_until
from tests.namespaces import Host

FAULTY = Path(__file__).parents[1] / "e2e" / "faulty.py"
TWO = {"dist.nodes": 2, "devices": "cpu:2", "train.threads": 1, "report.sample_s": 0.5}
RUN, JOIN = "run.log", "join.log"


class Pair(Commands):
    """Two ranks on each of the hosts, unless a test begins others."""

    def __init__(self, hosts: list[Host]) -> None:
        self.first, self.second = hosts
        super().__init__(self.first.runs, ranks=4)
        for host in hosts:
            shutil.copy(FAULTY, host.folder)

    def begin(self, *more: str, **changes: Any) -> subprocess.Popen[bytes]:
        """`distrain run` on the first host; dotted keys have `__` for the dot."""
        return self.distrain(self.first, RUN, "run", "ddp", *sets(TWO | dotted(changes)), *more)

    def distrain(
        self, host: Host, log: str, *words: str, **variables: str
    ) -> subprocess.Popen[bytes]:
        self.started.append(host.start(log, *DISTRAIN, *words, **variables))
        return self.started[-1]

    def once(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.first.run(*DISTRAIN, *words)

    def command(self) -> list[str]:
        """What the first host tells to run on the other, whose copy of the token is made."""
        told = r"distrain (join .*)\n.*token is a copy of (.*)"
        found = wait_until(lambda: re.search(told, self.first.said(RUN)))
        shutil.copy(found[2], self.second.folder / "token")
        return shlex.split(found[1])

    def join(self, *more: str) -> subprocess.Popen[bytes]:
        return self.distrain(self.second, JOIN, *self.command(), "--devices", "cpu:2", *more)

    def train(self, **changes: Any) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        """A run that would go on for ever, after its first steps."""
        both = self.begin(**ENDLESS, **changes), self.join()
        self.goes_on(both)
        return both

    @property
    def told(self) -> str:
        """What was said on both hosts."""
        logs = [(host, log) for host, log in ((self.first, RUN), (self.second, JOIN))]
        return "\n".join(host.said(log) for host, log in logs if (host.folder / log).exists())

    def events(self) -> list[Event]:
        return [event for _, event in self.record.events()]

    def notices(self) -> str:
        return "\n".join(event.text for event in self.events() if isinstance(event, Notice))

    def rank(self, number: int) -> psutil.Process:
        """A rank, wherever it runs."""
        for process in [*self.first.processes(), *self.second.processes()]:
            with suppress(psutil.Error):
                variables = process.environ()  # of Horovod's the last word has its own name
                rank = variables.get("HOROVOD_RANK", variables.get("RANK"))
                if rank == str(number) and "runners.worker" in process.cmdline():
                    return process
        raise AssertionError(f"there is no rank {number}")

    def assert_nothing_left(self) -> None:
        for host in (self.first, self.second):
            wait_until(lambda host=host: not host.processes(), 30)
