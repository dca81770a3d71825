"""How the ranks of a node come to be, and meet those of the others: the elastic agent of torch, a
store for ranks that are started one by one, Horovod's server.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runners.config import RunConfig
from runners.connecting import joined, split
from runners.errors import DistrainError
from runners.launchers.parent import Parent
from runners.launchers.place import Place
from runners.plan import Plan
from runners.processes import without_collecting


def ended(why: str) -> Exception:
    """What a signal's handler raises to end the work here; the elastic agent knows its own."""
    if agent := sys.modules.get("torch.distributed.elastic.multiprocessing.api"):
        return agent.SignalException(why, signal.SIGTERM)  # type: ignore[no-any-return]
    return DistrainError(why)


@contextmanager
def meeting(config: RunConfig, plan: Plan, address: str) -> Iterator[str]:
    """Where the ranks of all nodes meet, HOST:PORT on this host, while it is there."""
    if plan.backend == "horovod":
        from runners.launchers.horovodrun import rendezvous

        with rendezvous(plan.nodes, plan.ranks_per_node, address) as port:
            yield joined(address, port)
        return
    with without_collecting():
        from torch.distributed import TCPStore

    store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
    yield joined(address, store.port)
    del store


def start(parent: Parent, place: Place, config: RunConfig, plan: Plan, meeting: str) -> int:
    """Start the ranks that belong here and wait for their end; 1 where one failed."""
    if plan.backend == "horovod":
        return parent.train(_slots(place, config, plan, meeting))
    if place.rank is not None:
        return parent.train({place.rank: _alone(place, plan, meeting)})
    from runners.launchers.torchrun import elastic

    return elastic(
        parent,
        plan.ranks_per_node,
        nodes=plan.nodes,
        node=place.node,
        meeting=meeting,
        restarts=config.dist.max_restarts,
        patience=config.dist.join_timeout_s,
    )


def _slots(place: Place, config: RunConfig, plan: Plan, meeting: str) -> dict[int, dict[str, str]]:
    """What Horovod's ranks find in their environment, by rank."""
    from runners.launchers.horovodrun import settings, slot

    ours = settings(config, Path(os.environ["DISTRAIN_RUN"]))
    nodes, per_node, (host, port) = plan.nodes, plan.ranks_per_node, split(meeting)
    return {
        rank: ours | slot(nodes, per_node, place.node, local, host, str(port))
        for local, rank in place.ranks(per_node).items()
    }


def _alone(place: Place, plan: Plan, meeting: str) -> dict[str, str]:
    """What a rank that is started by itself finds in its environment."""
    host, port = split(meeting)
    return {
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.local_rank),
        "WORLD_SIZE": str(plan.world_size),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        # The store is this launcher's, so that no port need be agreed on before.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
