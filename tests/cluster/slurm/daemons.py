"""What a cluster consists of: munge, the controller and a slurmd per node, in one folder."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from tests.cluster.slurm.network import CONTROLLER, NODES, NUMBER, Node

FIRST_PORT = 16817  # of the controllers
IN_ROOT_NAMESPACE = ("munged", "slurmctld", "slurmscriptd")


def configure(folder: Path, settings: Mapping[str, str]) -> None:
    """Write all files that the daemons read; `settings` replace lines of slurm.conf."""
    folder.chmod(0o755)  # all users must be able to reach munge's socket
    for name in ("state", *(node.name for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o400)
    key.write_bytes(secrets.token_bytes(128))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # cgroups are not used
    text = Path(__file__).with_name("slurm.conf").read_text()
    text = text.format(
        folder=folder,
        host=socket.gethostname(),
        controller=CONTROLLER,
        port=FIRST_PORT + NUMBER,
    )
    lines = [line for line in text.splitlines() if line.partition("=")[0] not in settings]
    lines += [f"{key}={value}" for key, value in settings.items()]
    lines += [f"NodeName={node.name} NodeAddr={node.address} CPUs=8" for node in NODES]
    conf(folder).write_text("\n".join(lines) + "\n")


def conf(folder: Path) -> Path:
    return folder / "slurm.conf"


def commands(folder: Path) -> list[list[str]]:
    """Return the commands that start the daemons of the root namespace in the background."""
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid"}
    files |= {"log-file": "log", "seed-file": "seed"}
    munged = ["munged", *(f"--{option}={folder}/munge.{end}" for option, end in files.items())]
    return [munged, ["slurmctld", "-c"]]


def processes(folder: Path) -> list[psutil.Process]:
    """Return the daemons and all processes on the nodes.

    They are searched among the live processes, not in a list of started ones, so that processes
    whose parent has died are found too.
    """

    def is_daemon(process: psutil.Process) -> bool:
        if process.name() not in IN_ROOT_NAMESPACE or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return bool(process.environ().get("SLURM_CONF") == str(conf(folder)))

    return _live_processes(is_daemon) + on_nodes(*NODES)


def on_nodes(*nodes: Node) -> list[psutil.Process]:
    """Return the processes on these nodes: slurmd, and those of jobs."""
    pids = {pid for node in nodes for pid in node.pids()}
    return _live_processes(lambda process: process.pid in pids)


def complaints(folder: Path) -> str:
    """Return the errors in the daemons' logs."""
    logs = [log.read_text(errors="replace").splitlines() for log in folder.rglob("*.log")]
    lines = [line for log in logs for line in log]
    return "\n".join(line for line in lines if "error:" in line or "fatal:" in line)


def _live_processes(selects: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if selects(process):
                found.append(process)
    return found
