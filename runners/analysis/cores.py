"""The cores that a run may use, and how busy they are."""

from __future__ import annotations

from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.series import HOST, PROCS


def core_count(state: RunState) -> int | None:
    """Return the number of cores of the host that the run may use.

    Those of a job's nodes are not known.
    """
    if state.plan and state.plan.scheduled:
        return None
    host = state.provenance.get("host") or {}
    cores: int | None = host.get("threads")
    return host.get("usable_threads", cores) if _has_own_cores(state) else cores


def _has_own_cores(state: RunState) -> bool:
    """Return whether the ranks share a part of this host's cores, as those of a container."""
    host = state.provenance.get("host") or {}
    usable, plan = host.get("usable_threads"), state.plan
    is_here = plan is not None and not plan.tasks and plan.nodes == 1 and not plan.scheduled
    return is_here and usable is not None and usable < (host.get("threads") or usable)


def busy_percent(record: Record, state: RunState) -> float | None:
    """Return how busy the cores of `core_count` were over the whole run; None if unknown."""
    if _has_own_cores(state):
        each = record.totals(PROCS, ("cpu_sum", "cpu_n")).values()
        shares = [one["cpu_sum"] / one["cpu_n"] for one in each if one["cpu_n"]]
        return min(100.0, sum(shares) / (core_count(state) or 1)) if shares else None
    totals = record.totals(HOST).get(0)
    return totals["cpu_sum"] / totals["cpu_n"] if totals and totals["cpu_n"] else None
