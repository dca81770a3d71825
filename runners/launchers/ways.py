"""How the ranks of a node come to be, and meet those of the others: the elastic agent of torch, a
store for ranks that are started one by one, Horovod's server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runners.config import RunConfig
from runners.launchers.parent import Parent
from runners.launchers.place import Place
from runners.plan import Plan
from runners.processes import without_collecting


@contextmanager
def meeting(config: RunConfig, plan: Plan, address: str) -> Iterator[str]:
    """Where the ranks of all nodes meet, HOST:PORT on this host, while it is there."""
    if plan.backend == "horovod":
        from runners.launchers.horovodrun import rendezvous

        with rendezvous(plan.nodes, plan.ranks_per_node, address) as port:
            yield f"{address}:{port}"
        return
    with without_collecting():
        from torch.distributed import TCPStore

    store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
    yield f"{address}:{store.port}"
    del store


def start(parent: Parent, place: Place, config: RunConfig, plan: Plan, meeting: str) -> int:
    """Start the ranks that belong here and wait for their end; 1 where one failed."""
    ranks = place.ranks(plan.ranks_per_node)
    if plan.backend != "horovod" and place.rank is None:
        from runners.launchers.torchrun import elastic

        return elastic(
            parent,
            len(ranks),
            nodes=plan.nodes,
            node=place.node,
            meeting=meeting,
            restarts=config.dist.max_restarts,
            patience=config.dist.join_timeout_s,
        )
    if plan.backend == "horovod":
        from runners.launchers.horovodrun import settings

        os.environ |= settings(config, Path(os.environ["DISTRAIN_RUN"]))
    return parent.train(
        {rank: _where(plan, place.node, rank, local, meeting) for local, rank in ranks.items()}
    )


def _where(plan: Plan, node: int, rank: int, local: int, meeting: str) -> dict[str, str]:
    """How one rank knows its place, and where to meet the others."""
    host, _, port = meeting.rpartition(":")
    if plan.backend == "horovod":
        from runners.launchers.horovodrun import slot

        return slot(plan.nodes, plan.ranks_per_node, node, local, host, port)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(plan.world_size),
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
        # The store is this launcher's, so that no port need be agreed on before.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
