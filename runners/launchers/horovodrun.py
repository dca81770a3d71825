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
from queue import SimpleQueue

from runners.config import RunConfig
from runners.launchers.parent import LOOPBACK, Parent
from runners.plan import TIMELINE
from runners.record import Record

WORKER = [sys.executable, "-P", "-m", "runners.worker"]


def main() -> int:
    world, record = int(sys.argv[1]), Record(Path(os.environ["DISTRAIN_RUN"]))
    os.environ |= settings(record.config, record.dir)
    with Parent() as parent:
        if record.config.horovod.via != "distrain":
            return subprocess.run(foreign(record.config.horovod.via, world)).returncode
        with rendezvous(world) as port:
            return _watched(parent, [_started(rank, world, port) for rank in range(world)])


def settings(config: RunConfig, folder: Path) -> dict[str, str]:
    """What Horovod reads from the environment as it begins; what a person has set stays."""
    horovod, patience = config.horovod, max(1, math.ceil(config.dist.timeout_s))
    wanted = {
        "HOROVOD_FUSION_THRESHOLD": str(int(horovod.fusion_mb * 2**20)),
        "HOROVOD_CYCLE_TIME": str(horovod.cycle_ms),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(patience),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(patience),
        # It looks as often as it warns, and a warning later than the end would prevent the end.
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, min(patience // 2, 60))),
    }
    if horovod.timeline:
        wanted["HOROVOD_TIMELINE"] = str(folder / TIMELINE)
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


@contextmanager
def rendezvous(world: int) -> Iterator[int]:
    """Horovod's server at which ranks find each other, on the loopback; gives its port."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer((LOOPBACK, 0), RendezvousHandler, verbose=0)
    server.daemon_threads = True
    server.init(get_host_assignments(parse_hosts(f"localhost:{world}"), world))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def slot(rank: int, world: int, port: int) -> dict[str, str]:
    """The environment of a rank on a single host."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(world),
        "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": str(world),
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_HOSTNAME": "localhost",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": LOOPBACK,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        **({"HOROVOD_GLOO_IFACE": interface} if interface else {}),
    }


def _started(rank: int, world: int, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(WORKER, env={**os.environ, **slot(rank, world, port)})


def _watched(parent: Parent, ranks: list[subprocess.Popen[bytes]]) -> int:
    """Tell how each rank has ended until none is left; whoever stays when one has failed is ended
    by the supervisor, who has heard of it.
    """
    ended = SimpleQueue[int]()
    for rank, process in enumerate(ranks):
        threading.Thread(target=_wait, args=(rank, process, ended), daemon=True).start()
    failed = False
    for _ in ranks:
        process = ranks[rank := ended.get()]
        if process.returncode:
            failed = True
            parent.exited(rank, process.pid, process.returncode)
    return int(failed)


def _wait(rank: int, process: subprocess.Popen[bytes], ended: SimpleQueue[int]) -> None:
    process.wait()
    ended.put(rank)


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
        return [program, "-np", str(world), "-H", f"localhost:{world}", "--gloo", *nics, *WORKER]
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [program, "-np", str(world), "--oversubscribe", "--bind-to", "none", *as_root, *WORKER]


if __name__ == "__main__":
    sys.exit(main())
