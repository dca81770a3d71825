"""`torchrun`: the elastic agent of torch.distributed.run, asked for how each rank ended."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile

from runners.connecting import split
from runners.launchers.parent import LOOPBACK, Parent
from runners.processes import without_collecting

SIGNALS = "SIGINT,SIGHUP,SIGQUIT"  # which end the agent
LAST_CALL_S = 1  # nobody comes late: the number of hosts is fixed


def main() -> int:
    ranks, restarts = map(int, sys.argv[1:3])
    with Parent() as parent:
        return elastic(parent, ranks, restarts=restarts)


def elastic(
    parent: Parent,
    ranks: int,
    *,
    nodes: int = 1,
    node: int = 0,
    meeting: str = "",
    restarts: int = 0,
    patience: float = 600.0,
) -> int:
    """Have the agent start this node's ranks and wait for their end; 1 where one failed.

    All `nodes` meet at HOST:PORT, a TCPStore that lives elsewhere, within `patience` seconds; a
    node alone needs none. The ranks of all nodes are started up to `restarts` times again.
    """
    with without_collecting():
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.run import parse_args, run

    # The agent looks the host's name up for each line of its own statistics, before it tells how
    # ranks ended: where no name server answers, that takes longer than anybody waits.
    socket.getfqdn = _unasked
    settings = {
        # Left to itself it would look the host's name up to know whose the store is.
        "is_host": str(not meeting).lower(),
        "join_timeout": max(1, round(patience)),
        "last_call_timeout": LAST_CALL_S,
    }
    if restarts:
        # The store of the agent, which it keeps, would lead new ranks to the addresses of the old.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    host, port = split(meeting or f"{LOOPBACK}:0")
    ours = signal.getsignal(signal.SIGTERM)  # a node takes care of that itself
    # Left to itself, the agent makes a folder in /tmp for every run and keeps it.
    with tempfile.TemporaryDirectory(prefix="distrain-torchrun-") as logs:
        arguments = [
            f"--nproc-per-node={ranks}",
            f"--nnodes={nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}:{port}",  # of an IPv6 address without brackets
            f"--rdzv-conf={','.join(f'{name}={value}' for name, value in settings.items())}",
            f"--local-addr={parent.address if meeting else LOOPBACK}",
            f"--max-restarts={restarts}",
            f"--log-dir={logs}",
            f"--signals-to-handle={SIGNALS if callable(ours) else f'SIGTERM,{SIGNALS}'}",
            "-m",
            "runners.worker",
        ]
        try:
            run(parse_args(arguments))
        except ChildFailedError as error:
            for failure in error.failures.values():
                rank = node * ranks + failure.local_rank
                parent.exited(rank, failure.pid, failure.exitcode)
            return 1
    return 0


def _unasked(name: str = "") -> str:
    return name or socket.gethostname()


if __name__ == "__main__":
    sys.exit(main())
