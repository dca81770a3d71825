"""The hosts of a run: which joined, what they are called, where the ranks of all of them meet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from runners import words
from runners.config import RunConfig
from runners.events import (
    GPUS_OF_A_HOST,
    Event,
    GpuSample,
    Hello,
    HostSample,
    Notice,
    Over,
    RankSample,
    Sampled,
    Welcome,
)
from runners.plan import Plan

if TYPE_CHECKING:
    from runners.line import Line


class Member(NamedTuple):
    """A node, or a task of one; `leads` where the others meet."""

    node: int
    rank: int
    leads: bool


class Gone(NamedTuple):
    """A node, or a task of one, that has left; `early` where it had begun and not said all."""

    host: str
    rank: int
    early: bool


class Nodes:
    """Numbers nodes as they join, and tells each what to do once it can begin.

    `names` are the hosts by number; the first is the supervisor's own, unless a scheduler gives
    the hosts. `changed` is called with the names whenever one is new.
    """

    def __init__(
        self, run_id: str, config: RunConfig, plan: Plan, here: str, changed: Callable[[], object]
    ) -> None:
        self._welcome = Welcome(
            run_id=run_id,
            node=0,
            config=config.to_toml(),
            plan=msgspec.json.encode(plan).decode(),
            versions=_versions() if plan.spread else {},
        )
        self._plan, self._changed = plan, changed
        self.names = [] if plan.scheduled else [here]
        self._links: dict[Line, Member] = {}
        self._wait: list[Line] = []
        self._over: set[Line] = set()
        self._meeting = ""

    @property
    def missing(self) -> list[int]:
        """The hosts, or tasks by their ranks, that have not joined yet."""
        if self._plan.tasks:
            there = {member.rank for member in self._links.values()}
            return [rank for rank in range(self._plan.world_size) if rank not in there]
        everyone = range(self._plan.nodes if self._plan.nodes > 1 else 0)
        return [node for node in everyone if node not in self._numbers()]

    def __contains__(self, link: Line) -> bool:
        return link in self._links

    def greet(self, link: Line, hello: Hello) -> None:
        """Take in a node or a task, or say why there is no place for it."""
        node = hello.node if hello.node >= 0 else self._free(hello)
        why = self._no_place(node, hello)
        if node is None or why:
            self._refuse(link, why)
            return
        self._links[link] = Member(node, hello.rank, node == 0 and hello.local_rank == 0)
        self._name(node, hello.host)
        self._wait.append(link)
        self._answer()
        if link in self._wait:
            place, everyone = f"host {node}", words.things(self._plan.nodes, "host")
            if self._plan.tasks:
                place, everyone = f"rank {hello.rank}", words.things(self._plan.world_size, "rank")
            run = f"run {self._welcome.run_id}, which has {everyone}"
            text = f"{place} of {run} and begins when all are there"
            link.send(Notice(time=time.time(), text=text, level="info"))

    def _no_place(self, node: int | None, hello: Hello) -> str:
        """Why one cannot be taken in; empty where it can."""
        plan, run = self._plan, f"run {self._welcome.run_id}"
        if plan.tasks:
            if not 0 <= hello.rank < plan.world_size:
                return f"there is no rank {hello.rank} in {run}, of WORLD_SIZE {plan.world_size}"
            there = hello.rank not in self.missing
            return f"rank {hello.rank} of {run} is there already" if there else ""
        if node is None or node >= plan.nodes:
            return f"{run} has its {words.things(plan.nodes, 'host')} already"
        there = not plan.scheduled and node in self._numbers()
        return f"host {node} of {run} is there already" if there else ""

    def _refuse(self, link: Line, why: str) -> None:
        link.send(Notice(time=time.time(), text=why))
        link.close()

    def _numbers(self) -> set[int]:
        return {member.node for member in self._links.values()}

    def _free(self, hello: Hello) -> int | None:
        """A task belongs to its host, wherever that is; a node is a host of its own."""
        if hello.role == "task" and hello.host in self.names:
            return self.names.index(hello.host)
        taken = {0, *self._numbers()}
        if hello.role == "task":
            return len(self.names)
        return next((node for node in range(self._plan.nodes) if node not in taken), None)

    def _name(self, node: int, host: str) -> None:
        names = self.names + [""] * (node + 1 - len(self.names))
        names[node] = host
        if names != self.names:
            self.names = names
            self._changed()

    def met(self, link: Line, place: str) -> None:
        """Where the ranks meet is known now, from the node where they do."""
        if link in self._links and self._links[link].leads:
            self._meeting = place
            self._answer()

    def _answer(self) -> None:
        """Whoever can begin is told so: the first at once, the others when they can meet; tasks,
        which meet by themselves, when all are there.
        """
        if self._plan.tasks and self.missing:
            return
        waiting, self._wait = self._wait, []
        for link in waiting:
            member, plan = self._links[link], self._plan
            alone = plan.nodes == plan.world_size == 1
            if plan.tasks or member.leads or self._meeting or alone:
                link.send(replace(self._welcome, node=member.node, meeting=self._meeting))
            else:
                self._wait.append(link)

    def begin_anew(self) -> None:
        """Whoever is there is of a job that was queued again, and ends or is cut off."""
        links, self._links, self._wait, self._meeting = self._links, {}, [], ""
        for link in links:
            link.forget()

    def left(self, link: Line) -> Gone | None:
        """Forget a node that has gone; None where it was none."""
        if link not in self._links:
            return None
        member = self._links.pop(link)
        early = link not in self._wait and link not in self._over
        if link in self._wait:
            self._wait.remove(link)
        self._over.discard(link)
        if member.leads:
            self._meeting = ""
        return Gone(self.names[member.node], member.rank, early)

    def over(self, link: Line) -> None:
        """A node has said all. Once every task has, rank 0's need not wait for them any more."""
        self._over.add(link)
        if self._plan.tasks and not self.at_work:
            self.tell(Over())

    @property
    def at_work(self) -> bool:
        """Whether a node has still something to say."""
        return not self._over.issuperset(self._links)

    def tell(self, event: Event) -> None:
        for link in self._links:
            link.send(event)

    def samples(self, link: Line, sampled: Sampled) -> list[HostSample | GpuSample | RankSample]:
        """What a node measured, by the numbers of this run."""
        if link not in self._links:
            return []
        node = self._links[link].node
        hosts = [replace(sampled.host, host=node)] if sampled.host else []
        first = node * GPUS_OF_A_HOST
        gpus = [
            replace(gpu, gpu=first + gpu.gpu)
            for gpu in sampled.gpus
            if 0 <= gpu.gpu < GPUS_OF_A_HOST
        ]
        ranks = [each for each in sampled.ranks if 0 <= each.rank < self._plan.world_size]
        return [*hosts, *gpus, *ranks]


def _versions() -> dict[str, str]:
    from runners.provenance import versions  # a run of one host has no use for it

    return versions()
