"""What a cluster consists of: munge, the controller and a slurmd per node, in one folder."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from tests.slurm.network import CONTROLLER, NODES, Node

IN_ROOT_NAMESPACE = ("munged", "slurmctld", "slurmscriptd")


def configure(folder: Path, settings: Mapping[str, str]) -> None:
    """Write all that the daemons read; `settings` take the place of lines in slurm.conf."""
    folder.chmod(0o755)  # munge wants a socket that all can reach
    for name in ("state", *(node.name for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o400)
    key.write_bytes(secrets.token_bytes(128))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # none is made
    text = Path(__file__).with_name("slurm.conf").read_text()
    text = text.format(folder=folder, host=socket.gethostname(), controller=CONTROLLER)
    lines = [line for line in text.splitlines() if line.partition("=")[0] not in settings]
    lines += [f"{key}={value}" for key, value in settings.items()]
    lines += [f"NodeName={node.name} NodeAddr={node.address} CPUs=8" for node in NODES]
    conf(folder).write_text("\n".join(lines) + "\n")


def conf(folder: Path) -> Path:
    return folder / "slurm.conf"


def commands(folder: Path) -> list[list[str]]:
    """What starts the daemons of the root namespace; each returns when its daemon goes on alone."""
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid"}
    files |= {"log-file": "log", "seed-file": "seed"}
    munged = ["munged", *(f"--{option}={folder}/munge.{end}" for option, end in files.items())]
    return [munged, ["slurmctld", "-c"]]


def processes(folder: Path) -> list[psutil.Process]:
    """The daemons and whatever runs on the nodes.

    They are found by what they are, not by notes: nothing that a dead process started is missed.
    """

    def ours(process: psutil.Process) -> bool:
        if process.name() not in IN_ROOT_NAMESPACE or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return bool(process.environ().get("SLURM_CONF") == str(conf(folder)))

    return _living(ours) + on_nodes(*NODES)


def on_nodes(*nodes: Node) -> list[psutil.Process]:
    """A slurmd, and jobs with all that they have started."""
    pids = {pid for node in nodes for pid in node.pids()}
    return _living(lambda process: process.pid in pids)


def complaints(folder: Path) -> str:
    """The errors in the daemons' logs."""
    logs = [log.read_text(errors="replace").splitlines() for log in folder.rglob("*.log")]
    lines = [line for log in logs for line in log]
    return "\n".join(line for line in lines if "error:" in line or "fatal:" in line)


def _living(fits: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end while it is looked at
            if fits(process):
                found.append(process)
    return found
