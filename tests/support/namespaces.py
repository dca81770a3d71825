"""Hosts on one machine, each with its own network, name, processes and view of the file system.

A host consists of namespaces that one process holds. It ends with that process and leaves nothing
behind, because none of it has a name on the machine. Many networks can exist at the same time.
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
SWITCH = "10.213.65.1"  # no name server listens there: looking up a name fails at once
LENGTH = 24
BRIDGE = "switch"
PATIENCE = 120.0  # seconds
# It ignores children that nobody waits for, as a real init does.
HOLDS = 'trap "" CHLD; echo held; exec cat'
BRIDGED = f"""set -e
ip link add {BRIDGE} type bridge
ip address add {SWITCH}/{LENGTH} dev {BRIDGE}
ip link set {BRIDGE} up
{HOLDS}"""
# The folders of other hosts are hidden, so that no program can rely on a shared file system.
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
    """Return why no namespaces can be created on this machine, or None."""
    if not sys.platform.startswith("linux"):
        return "hosts in namespaces need Linux"
    if os.geteuid() != 0:
        return "hosts in namespaces need root"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"hosts in namespaces need {', '.join(missing)} (iproute2, util-linux)"
    probe = _run("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true")
    return f"no namespaces can be made here: {probe.stderr.strip()}" if probe.returncode else None


@dataclass(frozen=True)
class Host:
    """One host. Its `folder` is hidden from the other hosts, but the test can read it."""

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
        """Return this process's environment with the host's own folders."""
        own = {
            "HOME": self.folder,
            "TMPDIR": self.folder / "tmp",
            "DISTRAIN_RUNS_DIR": self.runs,
            "DISTRAIN_CLAIMS_DIR": self.folder / "claims",
        }
        return os.environ | {name: str(path) for name, path in own.items()}

    def command(self, *command: str) -> list[str]:
        """Return the command that runs `command` on the host, in its folder."""
        namespaces = ("--net", "--uts", "--mount", "--pid")
        within = ("nsenter", f"--target={self.holder}", *namespaces)
        return [*within, "sh", "-c", IN_ITS_FOLDER, str(self.folder), *command]

    def run(
        self, *command: str, timeout: float = PATIENCE, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host to its end, whatever its exit code."""
        environment = self.environment | variables
        return _run(*self.command(*command), env=environment, timeout=timeout)

    def start(self, log: str, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command on the host; stdout and stderr go to the file `log` in its folder."""
        with (self.folder / log).open("wb") as file:
            return subprocess.Popen(
                self.command(*command),
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def log_text(self, log: str) -> str:
        return (self.folder / log).read_text()

    def processes(self) -> list[psutil.Process]:
        """Return all live processes of the host."""
        namespace = _pid_namespace(self.holder)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                is_alive = process.status() != psutil.STATUS_ZOMBIE
                is_inside = _pid_namespace(process.pid) == namespace
                if is_alive and is_inside and process.pid != self.holder:
                    found.append(process)
        return found

    def cut(self) -> None:
        """Drop all packets from and to the host; its connections get no error."""
        self._link("nomaster")

    def restore(self) -> None:
        self._link("master", BRIDGE)

    def crash(self) -> None:
        """Disconnect the host and kill all of its processes."""
        self.cut()
        psutil.Process(self.holder).kill()

    def _link(self, *change: str) -> None:
        ip("link", "set", self.name, *change, inside=self.switch)


@contextlib.contextmanager
def network(folder: Path, count: int = 2) -> Iterator[list[Host]]:
    """Yield `count` hosts that reach each other by address, until the end of the block.

    Host names do not resolve.
    """
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(_held("--net", script=BRIDGED))
        hosts = [folder / f"h{number}" for number in range(count)]
        for host in hosts:
            for name in ("tmp", "claims", "runs"):
                (host / name).mkdir(parents=True)
            (host / "hosts").write_text("127.0.0.1 localhost\n")
            (host / "resolv.conf").write_text(f"nameserver {SWITCH}\n")
        yield [
            stack.enter_context(_host(host, number, switch)) for number, host in enumerate(hosts)
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
    """Hold namespaces until the end of the block or of this process; yield the pid of `unshare`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = ["unshare", *namespaces, "sh", "-c", script, "host", name]
    with subprocess.Popen(words, cwd=cwd, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "held\n":
            raise OSError(f"no namespaces: {process.stderr.read().strip()}")
        yield process.pid


def ip(*words: str, inside: int | None = None) -> str:
    """Run iproute2's `ip`, in the network namespace of the process `inside` if given.

    Return its output; raise OSError if it fails.
    """
    entered = ("nsenter", f"--target={inside}", "--net") if inside else ()
    done = _run(*entered, "ip", *words, timeout=30)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _pid_namespace(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def _run(
    *command: str, env: Mapping[str, str] | None = None, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=timeout
    )
