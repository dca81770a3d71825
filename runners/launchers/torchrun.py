"""Launcher `torchrun`: the elastic agent of torch.distributed.run, and how each rank ended."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from distrain.runners.launchers.supervisor_link import LOOPBACK, SupervisorLink, termination
from distrain.runners.protocol.client import split_address
from distrain.runners.protocol.events import Signalled
from distrain.runners.system.processes import without_garbage_collection
from distrain.runners.system.rank_identity import FIRST_HOST
from distrain.runners.system.scratch import scratch_parent

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
LAST_CALL_S = 1  # nobody joins late: the number of hosts is fixed
# Agents compare the times of each other's clocks, and would drop a host whose clock is 15 s behind.
# The supervisor notices hosts that are gone.
MISSED_HEARTBEATS = 10**9  # 158 years, which is more than a clock without a battery is behind


def main() -> int:
    ranks, max_restarts, *rank_command = sys.argv[1:]
    with SupervisorLink() as link:
        received = _report_signals(link)
        try:
            return run_elastic_agent(link, rank_command, int(ranks), max_restarts=int(max_restarts))
        except Exception:  # the agent's own, which ends the ranks
            if not received:
                raise
    signal.signal(received[0], signal.SIG_DFL)
    signal.raise_signal(received[0])
    return 1


def _report_signals(link: SupervisorLink) -> list[signal.Signals]:
    """Report a signal that ends this process, before its ranks end; return those that have come."""
    received: list[signal.Signals] = []

    def on_signal(number: int, _: object) -> None:
        received.append(signal.Signals(number))
        # Not in this thread: the signal may have interrupted it while it was sending.
        report = Signalled(time=time.time(), signal=number)
        threading.Thread(target=link.send, args=(report,), daemon=True).start()
        raise termination(f"received signal {number}", received[-1])

    for number in END_SIGNALS:
        signal.signal(number, on_signal)
    return received


def run_elastic_agent(
    link: SupervisorLink,
    rank_command: Sequence[str],
    ranks: int,
    *,
    nodes: int = 1,
    node: int = 0,
    meeting_place: str = "",
    max_restarts: int = 0,
    join_timeout_s: float = 600.0,
) -> int:
    """Start the `ranks` of this node with the elastic agent and wait for their end.

    Several `nodes` meet at `meeting_place`, the HOST:PORT of a TCPStore that somebody else keeps,
    within `join_timeout_s`; for a single node it is empty. The ranks of all nodes are restarted up
    to `max_restarts` times. Returns 1 if a rank failed, else 0.
    """
    with without_garbage_collection():
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.elastic.rendezvous import RendezvousTimeoutError
        from torch.distributed.run import parse_args, run

        from distrain.runners.launchers import local_store

    # The agent looks up the host's name for each line of its own statistics, before it reports how
    # ranks ended. Where no name server answers, that takes longer than the supervisor waits.
    socket.getfqdn = _without_lookup
    if meeting_place and max_restarts:
        # The store that the agent keeps would give the new ranks the addresses of the old ones.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        os.environ[FIRST_HOST], _ = split_address(meeting_place)
    local_store.register_rendezvous()
    # By default the agent creates a folder in /tmp for every run and never removes it.
    with tempfile.TemporaryDirectory(prefix="distrain-torchrun-", dir=scratch_parent()) as logs:
        arguments = [
            f"--nproc-per-node={ranks}",
            f"--nnodes={nodes}",
            f"--rdzv-backend={'c10d' if meeting_place else local_store.BACKEND}",
            *_rendezvous_options(meeting_place, join_timeout_s),
            f"--local-addr={link.address if meeting_place else LOOPBACK}",
            f"--max-restarts={max_restarts}",
            f"--log-dir={logs}",
            *_signal_options(),
            "--no-python",
            *rank_command,
        ]
        try:
            run(parse_args(arguments))
        except ChildFailedError as error:
            for failure in error.failures.values():
                rank = node * ranks + failure.local_rank
                link.report_exit(rank, failure.pid, failure.exitcode)
            return 1
        except RendezvousTimeoutError:
            limit = f"{join_timeout_s:g} s (dist.join_timeout_s)"
            print(f"not all hosts have started their ranks within {limit}", file=sys.stderr)
            return 1
    return 0


def _signal_options() -> list[str]:
    """Return the options by which the agent leaves signals to the handlers of this process.

    A node agent, and the main function of this module, handle some of them.
    """
    import torch

    own = [each for each in END_SIGNALS if callable(signal.getsignal(each))]
    if torch.__version__ >= "2.13":
        left = [each.name for each in (signal.SIGINT, *END_SIGNALS) if each not in own]
        return [f"--signals-to-handle={','.join(left)}"]
    from distrain.runners.launchers import older_torchrun

    older_torchrun.adapt(own)
    return []


def _rendezvous_options(meeting_place: str, join_timeout_s: float) -> list[str]:
    """Return where the agents of all nodes meet, and how long they wait for each other."""
    host, port = split_address(meeting_place or f"{LOOPBACK}:0")
    settings = {
        # By default the agent looks up the host's name to find out who owns the store.
        "is_host": "false",
        "join_timeout": max(1, round(join_timeout_s)),
        "last_call_timeout": LAST_CALL_S,
        "keep_alive_max_attempt": MISSED_HEARTBEATS,
    }
    return [
        f"--rdzv-endpoint={host}:{port}",  # an IPv6 address without brackets
        f"--rdzv-conf={','.join(f'{name}={value}' for name, value in settings.items())}",
    ]


def _without_lookup(name: str = "") -> str:
    return name or socket.gethostname()


if __name__ == "__main__":
    sys.exit(main())
