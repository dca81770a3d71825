"""Launcher `horovodrun`: the ranks of Horovod.

By default they are children of this process and meet at Horovod's own rendezvous server on the
loopback interface. The config may choose the command horovodrun, or that of MPI, instead.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distrain.runners.config.plan import TIMELINE
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.command import rank_command
from distrain.runners.launchers.supervisor_link import LOOPBACK, SupervisorLink
from distrain.runners.records.reader import Record

RANK_WRAPPER = [sys.executable, "-P", "-m", "distrain.runners.launchers.rank_wrapper"]


def main() -> int:
    world_size = int(sys.argv[1])
    record = Record(Path(os.environ["DISTRAIN_RUN"]))
    os.environ |= horovod_variables(record.config, record.dir)
    command = rank_command(record.config)
    with SupervisorLink() as link:
        if record.config.horovod.via != "distrain":
            starter = external_command(record.config.horovod.via, world_size)
            return subprocess.run([*starter, *RANK_WRAPPER, *command]).returncode
        with rendezvous_server(1, world_size, LOOPBACK) as port:
            variables = {
                rank: rank_variables(1, world_size, 0, rank, LOOPBACK, str(port))
                for rank in range(world_size)
            }
            return link.run_ranks(command, variables, forward_interrupts=record.config.is_script)


def horovod_variables(config: RunConfig, folder: Path) -> dict[str, str]:
    """Return the variables that Horovod reads at its start; what the user has set is kept."""
    horovod = config.horovod
    timeout_s = max(1, math.ceil(config.dist.timeout_s))
    wanted = {
        "HOROVOD_FUSION_THRESHOLD": str(int(horovod.fusion_mb * 2**20)),
        "HOROVOD_CYCLE_TIME": str(horovod.cycle_ms),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(timeout_s),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(timeout_s),
        # Horovod checks as often as it warns, and needs three checks before it begins to count.
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, min(timeout_s // 20, 30))),
    }
    if horovod.timeline:
        wanted["HOROVOD_TIMELINE"] = str(folder / TIMELINE)
    return _unless_set(wanted)


def _unless_set(wanted: dict[str, str]) -> dict[str, str]:
    """Return the variables with the values that the user has set, where there are any."""
    return {name: os.environ.get(name) or value for name, value in wanted.items()}


@contextmanager
def rendezvous_server(nodes: int, ranks_per_node: int, address: str) -> Iterator[int]:
    """Run the server at which Horovod's ranks find each other; gives its port."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer((address, 0), RendezvousHandler, verbose=0)
    server.daemon_threads = True
    hosts = ",".join(f"{_host_name(node)}:{ranks_per_node}" for node in range(nodes))
    server.init(get_host_assignments(parse_hosts(hosts), nodes * ranks_per_node))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _host_name(node: int) -> str:
    """Return the name that Horovod uses for a node; it looks up none of them."""
    return f"node{node}"


def rank_variables(
    nodes: int, ranks_per_node: int, node: int, local_rank: int, address: str, port: str
) -> dict[str, str]:
    """Return the variables that tell Horovod which rank it is, and where the server listens."""
    choices = {"HOROVOD_CPU_OPERATIONS": "gloo"}
    if interface := os.environ.get("GLOO_SOCKET_IFNAME"):
        choices["HOROVOD_GLOO_IFACE"] = interface
    return _unless_set(choices) | {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_RANK": str(node * ranks_per_node + local_rank),
        "HOROVOD_SIZE": str(nodes * ranks_per_node),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(ranks_per_node),
        "HOROVOD_CROSS_RANK": str(node),
        "HOROVOD_CROSS_SIZE": str(nodes),
        "HOROVOD_HOSTNAME": _host_name(node),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
    }


def external_command(program: str, world_size: int) -> list[str]:
    """Return the command line by which `program`, horovodrun or mpirun, starts ranks here."""
    search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which(program, path=search_path)
    if found is None:
        sys.exit(f"{program} was not found")
    command = [found, "-np", str(world_size)]
    if program == "horovodrun":
        command += ["-H", f"localhost:{world_size}", "--gloo"]
        if interface := os.environ.get("GLOO_SOCKET_IFNAME"):
            command += ["--network-interfaces", interface]
        return command
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in version:
        command += ["--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return command


if __name__ == "__main__":
    sys.exit(main())
