"""The hosts of a run: which have joined, their names, and where the ranks of all of them meet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import (
    GPUS_PER_HOST,
    Event,
    GpuSample,
    Hello,
    HostSample,
    NodeFinished,
    Notice,
    RankSample,
    Sampled,
    Welcome,
)
from distrain.runners.supervision.connection import Connection


class Member(NamedTuple):
    """A node agent that has joined: of the host `node`, or of one rank there.

    `ranks` are those that it starts, `rank` the one of an agent that starts a single rank.
    `is_leader` marks the one at whose address the ranks of all hosts meet.
    """

    node: int
    rank: int
    ranks: range
    is_leader: bool


class Departure(NamedTuple):
    """A node agent that has left; `is_early` where it had begun but not finished its work.

    Agents but the leader begin once all have joined.
    """

    host: str
    rank: int
    is_early: bool
    is_leader: bool


class Membership:
    """Numbers hosts as they join and tells each node agent what to do once it can begin.

    `hosts` are the names of the hosts by number; the first is this host, unless a scheduler
    chooses the hosts. `on_change` is called after every change of `hosts`. `meeting_place` is
    where the ranks meet, HOST:PORT; empty while that is not known. `previous` is the id of the run
    whose files a script continues from.
    """

    def __init__(
        self,
        run_id: str,
        config: RunConfig,
        plan: Plan,
        here: str,
        on_change: Callable[[], object],
        previous: str = "",
    ) -> None:
        self._welcome = Welcome(
            run_id=run_id,
            node=0,
            config=config.to_toml(),
            plan=msgspec.json.encode(plan).decode(),
            versions=_versions() if plan.spread else {},
            previous=previous,
        )
        self._plan = plan
        self._on_change = on_change
        self.hosts = [] if plan.scheduled else [here]
        self.meeting_place = ""
        self._members: dict[Connection, Member] = {}
        self._waiting: list[Connection] = []
        self._finished: set[Connection] = set()
        self._finished_ranks: set[int] = set()  # also of agents that have left since

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._members

    @property
    def missing(self) -> list[int]:
        """The numbers of the hosts that have not joined; with one agent per rank, those ranks."""
        if self._plan.tasks:
            joined = {member.rank for member in self._members.values()}
            return [rank for rank in range(self._plan.world_size) if rank not in joined]
        if self._plan.nodes == 1:
            return []
        return [node for node in range(self._plan.nodes) if node not in self._node_numbers()]

    @property
    def has_unfinished(self) -> bool:
        """Whether a node agent still has something to report."""
        return not self._finished.issuperset(self._members)

    def join(self, connection: Connection, hello: Hello) -> None:
        """Accept a node agent, or send it the reason why it cannot take part."""
        node = hello.node if hello.node >= 0 else self._free_number(hello)
        refusal = self._refusal(node, hello)
        if node is None or refusal:
            connection.send(Notice(time=time.time(), text=refusal))
            connection.close()
            return
        is_leader = node == 0 and hello.local_rank == 0
        ranks = self._ranks_of(node, hello)
        self._members[connection] = Member(node, hello.rank, ranks, is_leader)
        self._finished_ranks.difference_update(ranks)  # of a host that could not take part
        self._set_name(node, hello.host)
        self._waiting.append(connection)
        self._welcome_ready()
        if connection in self._waiting:
            text = self._waiting_text(node, hello.rank)
            connection.send(Notice(time=time.time(), text=text, level="info"))

    def _ranks_of(self, node: int, hello: Hello) -> range:
        first, count = node * self._plan.ranks_per_node, self._plan.ranks_per_node
        if hello.role == "task":
            first, count = hello.rank, 1
        return range(first, first + count)

    def refusal(self, connection: Connection, event: Event) -> str:
        """Return why a node agent may not send this event; empty where it may."""
        rank = getattr(event, "rank", None)
        if rank is None or connection not in self._members:
            return ""
        node, _, ranks, _ = self._members[connection]
        return "" if rank in ranks else f"host {node} may not report for rank {rank}"

    def agent_of(self, rank: int) -> Connection | None:
        """Return the connection of the node agent that has started a rank."""
        found = (agent for agent, member in self._members.items() if rank in member.ranks)
        return next(found, None)

    def distant_host(self, connection: Connection) -> str:
        """Return the name of the host of a node agent; empty for that of this host, or another
        connection.
        """
        member = self._members.get(connection)
        return self.hosts[member.node] if member and not member.is_leader else ""

    def _waiting_text(self, node: int, rank: int) -> str:
        run_id = self._welcome.run_id
        if self._plan.tasks:
            ranks = formatting.plural(self._plan.world_size, "rank")
            return f"joined run {run_id} as rank {rank}; it starts once all {ranks} have joined"
        hosts = formatting.plural(self._plan.nodes, "host")
        return f"joined run {run_id} as host {node}; it starts once all {hosts} have joined"

    def _refusal(self, node: int | None, hello: Hello) -> str:
        """Return why a node agent cannot take part; empty where it can."""
        plan = self._plan
        run = f"run {self._welcome.run_id}"
        if plan.tasks:
            if not 0 <= hello.rank < plan.world_size:
                return f"{run} has no rank {hello.rank}: its WORLD_SIZE is {plan.world_size}"
            has_joined = hello.rank not in self.missing
            return f"rank {hello.rank} of {run} has already joined" if has_joined else ""
        if node is None or node >= plan.nodes:
            return f"{run} has no free place: it has {formatting.plural(plan.nodes, 'host')}"
        has_joined = not plan.scheduled and node in self._node_numbers()
        return f"host {node} of {run} has already joined" if has_joined else ""

    def _node_numbers(self) -> set[int]:
        return {member.node for member in self._members.values()}

    def _free_number(self, hello: Hello) -> int | None:
        """Return the number of a host that does not know its own; None where all are taken.

        The agents of several ranks on one host share its number, however many hosts there are.
        """
        if hello.role == "task":
            return self.hosts.index(hello.host) if hello.host in self.hosts else len(self.hosts)
        taken = {0, *self._node_numbers()}
        return next((node for node in range(self._plan.nodes) if node not in taken), None)

    def _set_name(self, node: int, host: str) -> None:
        hosts = self.hosts + [""] * (node + 1 - len(self.hosts))
        hosts[node] = host
        if hosts != self.hosts:
            self.hosts = hosts
            self._on_change()

    def set_meeting_place(self, connection: Connection, place: str) -> None:
        """Take the place where the ranks meet from the leader; others cannot set it."""
        if connection in self._members and self._members[connection].is_leader:
            self.meeting_place = place
            self._welcome_ready()

    def _welcome_ready(self) -> None:
        """Send the welcome to every node agent that can begin.

        The leader can begin at once, so that the meeting place is known; the others can begin once
        all have joined. One that begins before could leave again, and where the ranks meet it would
        be counted all the same. Agents of single ranks, which meet by themselves, can begin once
        all have joined.
        """
        if self._plan.tasks and self.missing:
            return
        is_single = self._plan.nodes == self._plan.world_size == 1
        has_place = self._plan.tasks or is_single or bool(self.meeting_place)
        all_ready = has_place and not self.missing
        waiting = self._waiting
        self._waiting = []
        for connection in waiting:
            member = self._members[connection]
            if all_ready or member.is_leader:
                welcome = replace(self._welcome, node=member.node, rendezvous=self.meeting_place)
                connection.send(welcome)
            else:
                self._waiting.append(connection)

    def reset(self) -> None:
        """Disconnect everybody: their job was requeued, and they end or are unreachable."""
        members = self._members
        self._members = {}
        self._waiting = []
        self._finished_ranks.clear()
        self.meeting_place = ""
        for connection in members:
            connection.discard()

    def remove(self, connection: Connection) -> Departure | None:
        """Remove a node agent that has left; return None where the connection is no agent's."""
        if connection not in self._members:
            return None
        member = self._members.pop(connection)
        is_early = connection not in self._waiting and connection not in self._finished
        if connection in self._waiting:
            self._waiting.remove(connection)
        self._finished.discard(connection)
        if member.is_leader:
            self.meeting_place = ""
        return Departure(self.hosts[member.node], member.rank, is_early, member.is_leader)

    def mark_finished(self, connection: Connection) -> None:
        """Note that a node agent has reported everything.

        Once the agents of all ranks have, that of rank 0 may end, whose end is that of the run.
        """
        if connection in self._members:
            self._finished.add(connection)
            self._finished_ranks.update(self._members[connection].ranks)
        if len(self._finished_ranks) == self._plan.world_size:
            self.broadcast(NodeFinished())

    def broadcast(self, event: Event) -> None:
        for connection in self._members:
            connection.send(event)

    def number_samples(
        self, connection: Connection, sampled: Sampled
    ) -> list[HostSample | GpuSample | RankSample]:
        """Return what a node agent measured, with the host and GPU numbers of this run."""
        if connection not in self._members:
            return []
        node = self._members[connection].node
        hosts = [replace(sampled.host, host=node)] if sampled.host else []
        first_gpu = node * GPUS_PER_HOST
        gpus = [
            replace(gpu, gpu=first_gpu + gpu.gpu)
            for gpu in sampled.gpus
            if 0 <= gpu.gpu < GPUS_PER_HOST
        ]
        own = self._members[connection].ranks
        ranks = [each for each in sampled.ranks if each.rank in own]
        return [*hosts, *gpus, *ranks]


def hosts_join(plan: Plan) -> bool:
    """Return whether hosts connect by themselves, rather than as nodes of a scheduler's job."""
    return plan.spread and not plan.scheduled


def _versions() -> dict[str, str]:
    # Imported late: a run on a single host does not need it.
    from distrain.runners.system.provenance import versions

    return versions()
