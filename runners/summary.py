"""The one object that says how a run went: `distrain run --json`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from runners.series import rate_of_all

if TYPE_CHECKING:
    from runners.events import Facts
    from runners.record import Record


def summarize(record: Record) -> dict[str, Any]:
    """Figures of a record as it is now; see `Record.summary`. None is unknown."""
    state, config = record.state, record.config
    plan = state.plan
    totals = record.totals().values()
    evaluations = record.evaluations()
    attempts = record.attempts()
    begun = state.facts.start_step if state.facts else 0
    steps = max((total["step"] for total in totals), default=begun)
    summary = {
        "run_id": record.id,
        "dir": str(record.dir),
        "status": state.status,
        "strategy": config.strategy,
        "launcher": config.launcher,
        "precision": plan.precision if plan else config.precision,
        "world_size": plan.world_size if plan else None,
        "nodes": plan.nodes if plan else None,
        "devices": [device.label for device in plan.devices] if plan else [],
        "epochs": _epochs(steps, state.facts) if state.facts else 0,
        "steps": steps,
        "samples": sum(total["samples"] for total in totals),
        "samples_per_s": throughput(totals),
        "duration_s": _duration(state.started, state.ended),
        "attempts": len(attempts),
        "steps_again": sum(max(0, attempt.lost - attempt.step) for attempt in attempts),
        "eval": None,
    }
    if evaluations:
        last = evaluations[-1]
        metrics = {name: metric.value for name, metric in last.metrics.items()}
        summary["eval"] = {**metrics, "samples": last.samples}
    if state.error is not None:
        error = state.error
        summary["error"] = {"rank": error.rank, "type": error.type, "message": error.message}
    return summary


def _epochs(steps: int, facts: Facts) -> int:
    """Full epochs of the training once so many steps are finished."""
    per_epoch = facts.steps_per_epoch
    done_before = per_epoch - (facts.start_epoch_steps or per_epoch)
    return facts.start_epoch + (steps - facts.start_step + done_before) // per_epoch


def throughput(totals: Iterable[dict[str, Any]]) -> float | None:
    """Samples per second of the run: the ranks' own rates without warm-up, added up.

    None where a rank has measured nothing but warm-up.
    """
    return rate_of_all(
        total["timed_samples"] / total["timed_seconds"] if total["timed_seconds"] else None
        for total in totals
    )


def _duration(started: float | None, ended: float | None) -> float | None:
    return None if started is None else (ended or time.time()) - started
