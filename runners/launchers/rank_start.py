"""How a node agent starts its ranks, and where they meet those of other nodes.

There are three ways: torch's elastic agent, a store for ranks that are started one by one, and
Horovod's server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers.command import rank_command
from distrain.runners.launchers.supervisor_link import SupervisorLink
from distrain.runners.protocol.client import join_address, split_address
from distrain.runners.system.processes import without_garbage_collection
from distrain.runners.system.rank_identity import AgentIdentity


@contextmanager
def meeting_place(config: RunConfig, plan: Plan, address: str) -> Iterator[str]:
    """Keep the place on this host where the ranks of all nodes meet; gives its HOST:PORT."""
    if plan.backend == "horovod":
        from distrain.runners.launchers.horovodrun import rendezvous_server

        with rendezvous_server(plan.nodes, plan.ranks_per_node, address) as port:
            yield join_address(address, port)
        return
    with without_garbage_collection():
        from torch.distributed import TCPStore

    store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
    yield join_address(address, store.port)
    del store


def run_ranks(
    link: SupervisorLink, identity: AgentIdentity, config: RunConfig, plan: Plan, place: str
) -> int:
    """Start the ranks of a node agent and wait for their end; return 1 if one failed, else 0.

    `place` is where the ranks of all nodes meet, HOST:PORT.
    """
    command = rank_command(config)
    children: dict[int, dict[str, str]] = {}
    if plan.backend == "horovod":
        children = _horovod_ranks(identity, config, plan, place)
    elif identity.rank is not None:
        children = {identity.rank: _single_rank(identity, plan, place)}
    if children:
        return link.run_ranks(command, children, forward_interrupts=config.is_script)
    from distrain.runners.launchers.torchrun import run_elastic_agent

    return run_elastic_agent(
        link,
        command,
        plan.ranks_per_node,
        nodes=plan.nodes,
        node=identity.node,
        meeting_place=place,
        max_restarts=config.dist.max_restarts,
        join_timeout_s=config.dist.join_timeout_s,
    )


def _horovod_ranks(
    identity: AgentIdentity, config: RunConfig, plan: Plan, place: str
) -> dict[int, dict[str, str]]:
    """Return the variables of Horovod's ranks, by rank."""
    from distrain.runners.launchers.horovodrun import horovod_variables, rank_variables

    common = horovod_variables(config, Path(os.environ["DISTRAIN_RUN"]))
    per_node = plan.ranks_per_node
    host, port = split_address(place)
    return {
        rank: common | rank_variables(plan.nodes, per_node, identity.node, local, host, str(port))
        for local, rank in identity.ranks(per_node).items()
    }


def _single_rank(identity: AgentIdentity, plan: Plan, place: str) -> dict[str, str]:
    """Return the variables of a rank whose agent starts no other."""
    host, port = split_address(place)
    return {
        "RANK": str(identity.rank),
        "LOCAL_RANK": str(identity.local_rank),
        "WORLD_SIZE": str(plan.world_size),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        # This launcher keeps the store, so that no port has to be agreed on in advance.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
