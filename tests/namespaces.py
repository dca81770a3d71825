"""Hosts on one machine, each with a network, a name, processes and a file system view of its own.

A host is what runs in the namespaces that a process holds for it, and it ends with that process:
nothing has a name on the machine that could be left behind, and many networks stand side by side.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

PROGRAMS = ("ip", "mount", "nsenter", "unshare")
SWITCH = "10.213.65.1"  # where no name server listens: a question for a name fails at once
LENGTH = 24
BRIDGE = "switch"
PATIENCE = 120.0  # seconds
# Children that nobody waits for are none of its business, as with a real init.
HOLDS = 'trap "" CHLD; echo held; exec cat'
BRIDGED = f"""set -e
ip link add {BRIDGE} type bridge
ip address add {SWITCH}/{LENGTH} dev {BRIDGE}
ip link set {BRIDGE} up
{HOLDS}"""
# Folders of others are hidden, so that nobody can count on a common file system.
ALONE = f"""set -e
hostname "$1"
ip link set lo up
mount --bind hosts /etc/hosts
mount --bind resolv.conf /etc/resolv.conf
mount -t tmpfs none /dev/shm
for other in ../*; do
  [ "$other" = "../$1" ] || mount -t tmpfs -o ro none "$other"
done
{HOLDS}"""
IN_ITS_FOLDER = 'cd "$0" && exec "$@"'


def problem() -> str | None:
    """Why no namespaces can be made here, or None."""
    if not sys.platform.startswith("linux"):
        return "hosts in namespaces need Linux"
    if os.geteuid() != 0:
        return "hosts in namespaces need root"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"hosts in namespaces need {', '.join(missing)} (iproute2, util-linux)"
    tried = _run("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true")
    return f"no namespaces can be made here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass(frozen=True)
class Host:
    """One host. Its `folder` is hidden from the others, and open to whoever runs the tests."""

    name: str
    address: str
    folder: Path
    switch: int
    holder: int

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def environment(self) -> dict[str, str]:
        """This process's, with folders of the host's own."""
        own = {
            "HOME": self.folder,
            "TMPDIR": self.folder / "tmp",
            "DISTRAIN_RUNS_DIR": self.runs,
            "DISTRAIN_CLAIMS_DIR": self.folder / "claims",
        }
        return os.environ | {name: str(path) for name, path in own.items()}

    def command(self, *command: str) -> list[str]:
        """`command` as a process of the host, in its folder."""
        namespaces = ("--net", "--uts", "--mount", "--pid")
        within = ("nsenter", f"--target={self.holder}", *namespaces)
        return [*within, "sh", "-c", IN_ITS_FOLDER, str(self.folder), *command]

    def run(
        self, *command: str, timeout: float = PATIENCE, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of the host from start to end, whatever its exit code."""
        environment = self.environment | variables
        return _run(*self.command(*command), env=environment, timeout=timeout)

    def start(self, log: str, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        """A command of the host that goes on; what it says, on stderr too, is in that file."""
        with (self.folder / log).open("wb") as file:
            return subprocess.Popen(
                self.command(*command),
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def said(self, log: str) -> str:
        return (self.folder / log).read_text()

    def processes(self) -> list[psutil.Process]:
        """Whatever lives on the host."""
        ours, found = _pids_of(self.holder), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                lives = process.status() != psutil.STATUS_ZOMBIE
                if lives and process.pid != self.holder and _pids_of(process.pid) == ours:
                    found.append(process)
        return found

    def cut(self) -> None:
        """Its packets and those for it are lost; its connections are not told."""
        self._link("nomaster")

    def restore(self) -> None:
        self._link("master", BRIDGE)

    def crash(self) -> None:
        """All its processes are gone, and say no more."""
        self.cut()
        psutil.Process(self.holder).kill()

    def _link(self, *change: str) -> None:
        ip("link", "set", self.name, *change, inside=self.switch)


@contextlib.contextmanager
def network(folder: Path, count: int = 2) -> Iterator[list[Host]]:
    """`count` hosts that reach each other by address; no name resolves. All ends with the block."""
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(_held("--net", script=BRIDGED))
        hosts = [folder / f"h{number}" for number in range(count)]
        for place in hosts:
            for name in ("tmp", "claims", "runs"):
                (place / name).mkdir(parents=True)
            (place / "hosts").write_text("127.0.0.1 localhost\n")
            (place / "resolv.conf").write_text(f"nameserver {SWITCH}\n")
        yield [
            stack.enter_context(_host(place, number, switch)) for number, place in enumerate(hosts)
        ]


@contextlib.contextmanager
def _host(folder: Path, number: int, switch: int) -> Iterator[Host]:
    namespaces = ("--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc")
    with _held(*namespaces, script=ALONE, name=folder.name, cwd=folder) as parent:
        (process,) = psutil.Process(parent).children()
        host = Host(folder.name, f"10.213.65.{number + 2}", folder, switch, process.pid)
        end = ("type", "veth", "peer", "name", "eth0", "netns", str(host.holder))
        ip("link", "add", host.name, *end, inside=switch)
        ip("link", "set", host.name, "master", BRIDGE, "up", inside=switch)
        ip("address", "add", f"{host.address}/{LENGTH}", "dev", "eth0", inside=host.holder)
        ip("link", "set", "eth0", "up", inside=host.holder)
        ip("route", "add", "default", "via", SWITCH, inside=host.holder)
        yield host


@contextlib.contextmanager
def _held(*namespaces: str, script: str, name: str = "", cwd: Path | None = None) -> Iterator[int]:
    """New namespaces until the end of the block, or of this process; gives the pid of `unshare`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = ["unshare", *namespaces, "sh", "-c", script, "host", name]
    with subprocess.Popen(words, cwd=cwd, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "held\n":
            raise OSError(f"no namespaces: {process.stderr.read().strip()}")
        yield process.pid


def ip(*words: str, inside: int | None = None) -> str:
    """What iproute2's `ip` prints, in the network namespace of a process; raises OSError."""
    entered = ("nsenter", f"--target={inside}", "--net") if inside else ()
    done = _run(*entered, "ip", *words, timeout=30)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _pids_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def _run(
    *command: str, env: Mapping[str, str] | None = None, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=timeout
    )
