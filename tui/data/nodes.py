"""The machines of a run, each with its ranks, its GPUs and what is amiss on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from runners import words
from runners.events import GpuSample, HostSample
from runners.rollup import Curve
from runners.snapshot import RankNow
from runners.state import RunState

SILENT_S = 10.0  # behind the newest sample of all hosts, after which a host counts as silent
T = TypeVar("T", GpuSample, HostSample)


class Gauge(NamedTuple, Generic[T]):
    """A GPU or a host: its last sample, and curves of its latest time.

    `lost` where it gave figures and gives none any more.
    """

    sample: T
    history: Curve
    lost: bool = False


class Node(NamedTuple):
    """A machine of the run; `number` as samples have it. `amiss` and what it still `lacks`, which
    is no trouble, are in words, or empty.
    """

    number: int
    name: str
    ranks: Sequence[RankNow] = ()
    host: Gauge[HostSample] | None = None
    gpus: Sequence[Gauge[GpuSample]] = ()
    amiss: str = ""
    lacks: str = ""


def nodes(
    state: RunState,
    ranks: Iterable[RankNow],
    hosts: Iterable[Gauge[HostSample]],
    gpus: Iterable[Gauge[GpuSample]],
) -> list[Node]:
    """The machines by number; one where nothing is known of several."""
    numbers = {name: number for number, name in enumerate(state.hosts)}
    there: dict[int, list[RankNow]] = {}
    for rank in ranks:
        there.setdefault(numbers.get(rank.info.host, 0), []).append(rank)
    by_host: dict[int, list[Gauge[GpuSample]]] = {}
    for gpu in gpus:
        by_host.setdefault(gpu.sample.host, []).append(gpu)
    gauges = {gauge.sample.host: gauge for gauge in hosts}
    newest = max((gauge.sample.time for gauge in gauges.values()), default=0.0)
    known = sorted({0, *there, *by_host, *gauges, *range(len(state.hosts))})
    return [
        _node(at, state, there.get(at, ()), gauges.get(at), by_host.get(at, ()), newest)
        for at in known
    ]


def _node(
    number: int,
    state: RunState,
    ranks: Sequence[RankNow],
    host: Gauge[HostSample] | None,
    gpus: Sequence[Gauge[GpuSample]],
    newest: float,
) -> Node:
    name = state.hosts[number] if number < len(state.hosts) else f"host {number}"
    silent = newest - host.sample.time if host and state.live else 0.0
    parts = [_failed(ranks)]
    if lost := [gauge.sample.index for gauge in gpus if gauge.lost]:
        parts.append(f"GPU {words.span(lost)} lost")
    if silent > SILENT_S:
        parts.append(f"silent for {words.duration(silent)}")
    lacks = "no rank yet" if state.live and not ranks else ""
    return Node(number, name, ranks, host, gpus, ", ".join(filter(None, parts)), lacks)


def by_trouble(nodes: Iterable[Node], late: int | None = None) -> list[Node]:
    """Those first on which something is amiss, then the one with the rank that is late."""

    def calm(node: Node) -> tuple[bool, bool]:
        return not node.amiss, late not in {rank.info.rank for rank in node.ranks}

    return sorted(nodes, key=calm)


def has_failed(rank: RankNow) -> bool:
    return rank.info.phase == "failed" or rank.info.code not in (None, 0)


def _failed(ranks: Iterable[RankNow]) -> str:
    failed = [rank.info.rank for rank in ranks if has_failed(rank)]
    return f"{words.ranks(failed)} failed" if failed else ""
