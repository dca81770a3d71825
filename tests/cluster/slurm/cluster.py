"""A Slurm cluster of two nodes on one machine.

Usage: `python -m tests.cluster.slurm.cluster up|down|status`.

The controller and munge run in the root namespace; each node is a `slurmd` with a network and a
host name of its own. Starting a cluster ends the previous one of the same number (see `network`).
Its daemons, logs and sockets are in a temporary folder. Names of nodes resolve only in Slurm's own
configuration, on purpose: programs cannot count on more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from tests.cluster.slurm import daemons, network
from tests.cluster.slurm.network import NODES, NUMBER, Node

STATE = Path(f"/run/distrain-slurm-{NUMBER}")
FOUND = STATE / "folder"  # contains the path of the cluster's folder
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter", "unshare")
PATIENCE = 60.0  # seconds


class ClusterError(Exception):
    """The cluster does not work. The message is for the person who runs the tests."""


def problem() -> str | None:
    """Return why no cluster can be created on this machine, or None."""
    if not sys.platform.startswith("linux"):
        return "a cluster of namespaces needs Linux"
    if os.geteuid() != 0:
        return "a Slurm cluster needs root, for namespaces of its own"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"a Slurm cluster needs {', '.join(missing)}: run make slurm (Debian, as root)"
    return None


@contextlib.contextmanager
def claim() -> Iterator[None]:
    """Reserve the cluster of this number until the end of the block, or of the process."""
    STATE.mkdir(exist_ok=True)
    with (STATE / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError("another process uses this Slurm cluster") from None
        yield


class Cluster:
    """One cluster; `environment` is what Slurm's commands need to find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = daemons.conf(folder)

    @classmethod
    def up(cls, **settings: str) -> Cluster:
        """Create a cluster whose nodes are all idle. `settings` replace lines of slurm.conf."""
        if before := cls.found():
            before.down()
        cluster = cls(Path(tempfile.mkdtemp(prefix="distrain-slurm-", dir="/tmp")))
        STATE.mkdir(exist_ok=True)
        FOUND.write_text(str(cluster.folder))
        try:
            network.remove()
            network.build()
            daemons.configure(cluster.folder, settings)
            cluster.start()
        except (ClusterError, OSError, subprocess.SubprocessError) as error:
            logs = daemons.complaints(cluster.folder)
            cluster.down()
            raise ClusterError(f"the Slurm cluster did not come up: {error}\n{logs}") from error
        return cluster

    @classmethod
    def found(cls) -> Cluster | None:
        """Return the newest cluster that `down` has not removed, even if its daemons died."""
        return cls(Path(FOUND.read_text())) if FOUND.exists() else None

    def down(self) -> None:
        """End all processes, those of jobs too, and remove the network and the folder."""
        _end(lambda: daemons.processes(self.folder))
        network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
        FOUND.unlink(missing_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Return this process's environment, with Slurm's variables only for this cluster."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        return inherited | {"SLURM_CONF": str(self.conf)}

    def run(self, *command: str, at: str | None = None, stdin: str = "") -> str:
        """Run a command in the root namespace or on node `at`; return its output.

        Raise ClusterError if it fails.
        """
        words = node(at).command(*command) if at else list(command)
        done = subprocess.run(
            words,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        if done.returncode:
            output = (done.stderr + done.stdout).strip()
            raise ClusterError(f"{shlex.join(command)} ended with {done.returncode}: {output}")
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Submit the lines of a shell script as a job, by default without a log; return its id."""
        sbatch = ("sbatch", "--parsable", "--output=/dev/null")
        return self.run(*sbatch, *options, stdin=f"#!/bin/sh\n{script}\n")

    def job(self, job: str) -> dict[str, str]:
        """Return the fields that `scontrol show job` prints."""
        words = self.run("scontrol", "--oneliner", "show", "job", job).split()
        return {key: value for key, equals, value in (w.partition("=") for w in words) if equals}

    def cut(self, name: str) -> None:
        """Disconnect the node from the network.

        Its processes keep running, even while their job was requeued elsewhere, until Slurm
        reaches the node again and ends them.
        """
        network.cut(node(name))

    def crash(self, name: str) -> None:
        """Disconnect the node and kill all of its processes."""
        network.cut(node(name))
        _end(lambda: daemons.on_nodes(node(name)))

    def restore(self, name: str) -> None:
        """Reconnect the node, and restart its slurmd after a crash. Slurm notices it later."""
        network.restore(node(name))
        if not node(name).pids():
            self.run("slurmd", "-N", name, at=name)

    def processes(self) -> list[psutil.Process]:
        return daemons.processes(self.folder)

    def start(self) -> None:
        """Start the daemons and wait until all nodes are idle."""
        for command in daemons.commands(self.folder):
            self.run(*command)
        for each in NODES:
            self.restore(each.name)
        deadline = time.monotonic() + PATIENCE
        while not self._idle():
            if time.monotonic() > deadline:
                raise ClusterError(f"no idle nodes within {PATIENCE:.0f} s: {self.run('sinfo')}")
            time.sleep(0.05)

    def _idle(self) -> bool:
        try:
            states = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T")
        except ClusterError:  # the controller does not listen yet
            return False
        return states.split() == ["idle"] * len(NODES)


def node(name: str) -> Node:
    return next(each for each in NODES if each.name == name)


def _end(living: Callable[[], list[psutil.Process]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while processes := living():  # an ending process may just have started another
        if time.monotonic() > deadline:
            raise ClusterError(f"did not end: {processes}")
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)


def main(words: list[str]) -> int:
    commands = {"up": _up, "down": _down, "status": _status}
    if len(words) != 1 or words[0] not in commands:
        print(f"usage: python -m tests.cluster.slurm.cluster {'|'.join(commands)}", file=sys.stderr)
        return 2
    try:
        if why := problem():
            raise ClusterError(why)
        commands[words[0]]()
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _up() -> None:
    with claim():
        cluster = Cluster.up()
    print(f"export SLURM_CONF={cluster.conf}")


def _down() -> None:
    with claim():
        if cluster := Cluster.found():
            cluster.down()


def _status() -> None:
    if not (cluster := Cluster.found()):
        raise ClusterError("no cluster is up")
    print(f"export SLURM_CONF={cluster.conf}", cluster.run("sinfo"), sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
