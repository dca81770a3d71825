"""The nodes of a run with their ranks, GPUs and problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Generic, NamedTuple, TypeVar

from distrain.runners import formatting
from distrain.runners.protocol.events import GpuSample, HostSample
from distrain.runners.records.snapshot import RankNow
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.curves import Curve

SILENT_S = 10.0  # a host counts as silent if its last sample is this much older than the newest
T = TypeVar("T", GpuSample, HostSample)


class Gauge(NamedTuple, Generic[T]):
    """The last sample of a GPU or a host and its recent history.

    `lost`: the device reported values before and reports none now.
    """

    sample: T
    history: Curve
    lost: bool = False


class NodeStatus(NamedTuple):
    """A node of the run; samples refer to it by `number`.

    `problem` describes what is wrong with it, `waiting_for` what it still lacks; both may be "".
    """

    number: int
    name: str
    ranks: Sequence[RankNow] = ()
    host: Gauge[HostSample] | None = None
    gpus: Sequence[Gauge[GpuSample]] = ()
    problem: str = ""
    waiting_for: str = ""


def node_statuses(
    state: RunState,
    ranks: Iterable[RankNow],
    hosts: Iterable[Gauge[HostSample]],
    gpus: Iterable[Gauge[GpuSample]],
) -> list[NodeStatus]:
    """Return the nodes of a run by number; at least one."""
    ranks = list(ranks)
    numbers = state.host_numbers({rank.info.rank: rank.info.host for rank in ranks})
    ranks_by_host: dict[int, list[RankNow]] = {}
    for rank in ranks:
        ranks_by_host.setdefault(numbers[rank.info.rank], []).append(rank)
    gpus_by_host: dict[int, list[Gauge[GpuSample]]] = {}
    for gpu in gpus:
        gpus_by_host.setdefault(gpu.sample.host, []).append(gpu)
    host_gauges = {gauge.sample.host: gauge for gauge in hosts}
    newest = max((gauge.sample.time for gauge in host_gauges.values()), default=0.0)
    known = {0, *ranks_by_host, *gpus_by_host, *host_gauges, *range(len(state.hosts))}
    return [
        _node_status(
            number,
            state,
            ranks_by_host.get(number, ()),
            host_gauges.get(number),
            gpus_by_host.get(number, ()),
            newest,
        )
        for number in sorted(known)
    ]


def _node_status(
    number: int,
    state: RunState,
    ranks: Sequence[RankNow],
    host: Gauge[HostSample] | None,
    gpus: Sequence[Gauge[GpuSample]],
    newest: float,
) -> NodeStatus:
    name = state.hosts[number] if number < len(state.hosts) else f"host {number}"
    silent = newest - host.sample.time if host and state.live else 0.0
    problems = []
    if failed := [rank.info.rank for rank in ranks if has_failed(rank)]:
        problems.append(f"{formatting.ranks(failed)} failed")
    if lost := [gauge.sample.index for gauge in gpus if gauge.lost]:
        problems.append(f"GPU {formatting.ranges(lost)} lost")
    if silent > SILENT_S:
        problems.append(f"no samples for {formatting.duration(silent)}")
    waiting_for = "no ranks yet" if state.live and not ranks else ""
    return NodeStatus(number, name, ranks, host, gpus, ", ".join(problems), waiting_for)


def sort_by_problem(
    nodes: Iterable[NodeStatus], straggler: int | None = None, culprit: int | None = None
) -> list[NodeStatus]:
    """Sort the node of the rank that failed first before others with a problem, then the node of
    the straggling rank.
    """

    def key(node: NodeStatus) -> tuple[bool, bool, bool]:
        ranks = {rank.info.rank for rank in node.ranks}
        return culprit not in ranks, not node.problem, straggler not in ranks

    return sorted(nodes, key=key)


def has_failed(rank: RankNow) -> bool:
    return rank.info.phase == "failed" or rank.info.code not in (None, 0)


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there is none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
