"""`horovodrun`: the ranks of Horovod. By default they are children of this process, over Horovod's
own rendezvous server on the loopback; its own command and MPI's are choices of the config.
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

from runners.config import RunConfig
from runners.launchers.parent import LOOPBACK, Parent
from runners.plan import TIMELINE
from runners.record import Record

WATCHED = [sys.executable, "-P", "-m", "runners.launchers.watched"]


def main() -> int:
    world, record = int(sys.argv[1]), Record(Path(os.environ["DISTRAIN_RUN"]))
    os.environ |= settings(record.config, record.dir)
    with Parent() as parent:
        if record.config.horovod.via != "distrain":
            return subprocess.run(foreign(record.config.horovod.via, world)).returncode
        with rendezvous(1, world, LOOPBACK) as port:
            places = (slot(1, world, 0, rank, LOOPBACK, str(port)) for rank in range(world))
            return parent.train(dict(enumerate(places)))


def settings(config: RunConfig, folder: Path) -> dict[str, str]:
    """What Horovod reads from the environment as it begins; what a person has set stays."""
    horovod, patience = config.horovod, max(1, math.ceil(config.dist.timeout_s))
    wanted = {
        "HOROVOD_FUSION_THRESHOLD": str(int(horovod.fusion_mb * 2**20)),
        "HOROVOD_CYCLE_TIME": str(horovod.cycle_ms),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(patience),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(patience),
        # It looks as often as it warns, and needs three looks before it begins to count.
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, min(patience // 20, 30))),
    }
    if horovod.timeline:
        wanted["HOROVOD_TIMELINE"] = str(folder / TIMELINE)
    return unless_set(wanted)


def unless_set(wanted: dict[str, str]) -> dict[str, str]:
    """What a person has set in the environment goes before."""
    return {name: os.environ.get(name) or value for name, value in wanted.items()}


@contextmanager
def rendezvous(nodes: int, ranks: int, address: str) -> Iterator[int]:
    """Horovod's server at which the `ranks` of each node find each other; gives its port."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer((address, 0), RendezvousHandler, verbose=0)
    server.daemon_threads = True
    hosts = ",".join(f"{host_name(node)}:{ranks}" for node in range(nodes))
    server.init(get_host_assignments(parse_hosts(hosts), nodes * ranks))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def host_name(node: int) -> str:
    """What Horovod calls a node; it looks none of these names up."""
    return f"node{node}"


def slot(nodes: int, ranks: int, node: int, local: int, address: str, port: str) -> dict[str, str]:
    """What Horovod reads of a rank's place: `local` of the `ranks` of a node; and where to meet."""
    choices = {"HOROVOD_CPU_OPERATIONS": "gloo"}
    if interface := os.environ.get("GLOO_SOCKET_IFNAME"):
        choices["HOROVOD_GLOO_IFACE"] = interface
    return unless_set(choices) | {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_RANK": str(node * ranks + local),
        "HOROVOD_SIZE": str(nodes * ranks),
        "HOROVOD_LOCAL_RANK": str(local),
        "HOROVOD_LOCAL_SIZE": str(ranks),
        "HOROVOD_CROSS_RANK": str(node),
        "HOROVOD_CROSS_SIZE": str(nodes),
        "HOROVOD_HOSTNAME": host_name(node),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
    }


def foreign(via: str, world: int) -> list[str]:
    """The command line that starts the ranks by another's command, on this host."""
    program = shutil.which(
        via, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if program is None:
        sys.exit(f"there is no {via}")
    if via == "horovodrun":
        interface = os.environ.get("GLOO_SOCKET_IFNAME")
        nics = ["--network-interfaces", interface] if interface else []
        return [program, "-np", str(world), "-H", f"localhost:{world}", "--gloo", *nics, *WATCHED]
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    options = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in said else []
    if options and os.geteuid() == 0:
        options += ["--allow-run-as-root"]
    return [program, "-np", str(world), *options, *WATCHED]


if __name__ == "__main__":
    sys.exit(main())
