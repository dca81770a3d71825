"""The summary of a run: the one object that `distrain run --json` prints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from math import floor
from pathlib import Path
from typing import Any

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import (
    PHASES,
    SAMPLE,
    Attempt,
    Evaluation,
    Facts,
    ScriptSettings,
)
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.run_curve import add_rates
from distrain.runners.system.peak_flops import peak_flops

# Whose sources a script's summary names.
FIGURES = ("steps", "samples", "lr", *PHASES, "values", "eval", "memory")
NOT_REPORTED = "not reported by the script"
NOT_PYTHON = (
    "the program is not a Python script, and no Python program in it called distrain.init()"
)
VALUES_SOURCE = "logged by the script"  # by other ranks than rank 0
EVALUATION_SOURCE = "distrain.log_eval(), not checked"
MEMORY_SOURCE = "sampled by distrain, of the processes of each rank"
MISSING = {
    "eval": "distrain.log_eval() was not called",
    "memory": "no sample of the ranks' processes was taken",
}


def summarize(
    folder: Path,
    state: RunState,
    config: RunConfig,
    totals: Mapping[int, dict[str, Any]],
    evaluations: Sequence[Evaluation],
    attempts: Sequence[Attempt],
    metrics: Mapping[str, float | None],
    settings: ScriptSettings,
    has_memory: bool,
) -> dict[str, Any]:
    """Return the figures of a run as it is now; see `Record.summary`. None is unknown.

    `totals` are those of the windows of each rank. `metrics` are the last values that a script has
    logged, and `settings` what it has reported of itself. `has_memory`: processes were sampled.
    """
    plan = state.plan
    facts = state.facts
    start_step = facts.start_step if facts else 0
    steps = max((total["step"] for total in totals.values()), default=start_step)
    summary: dict[str, Any] = {
        "run_id": folder.name,
        "dir": str(folder),
        "status": state.status,
        "strategy": config.strategy,
        "launcher": config.launcher,
        "precision": plan.precision if plan else config.precision,
        "world_size": plan.world_size if plan else None,
        "nodes": plan.nodes if plan else None,
        "devices": [device.label for device in plan.devices] if plan else [],
        "epochs": _count_epochs(steps, facts) if facts else 0,
        "steps": steps,
        "samples": sum(total["samples"] for total in totals.values()),
        "samples_per_s": (samples_per_s := _throughput(totals.values())),
        **_item_rate(samples_per_s, facts),
        **_utilisation(samples_per_s, facts, plan),
        "duration_s": _duration(state.started, state.ended),
        "attempts": len(attempts),
        "steps_again": sum(max(0, attempt.lost - attempt.step) for attempt in attempts),
        "eval": None,
    }
    if config.is_script:
        found = {
            "values": VALUES_SOURCE if metrics else "",
            "eval": EVALUATION_SOURCE if evaluations else "",
            "memory": MEMORY_SOURCE if has_memory else "",
        }
        sources = found | settings.sources
        summary |= _only_known(summary, sources) | {
            "script": config.workload,
            "metrics": dict(metrics),
            "sources": _explain_sources(sources, MISSING | settings.missing, config, plan),
        }
    if evaluations:
        last = evaluations[-1]
        metrics = {name: metric.value for name, metric in last.metrics.items()}
        summary["eval"] = {**metrics, "samples": last.samples}
    if state.error is not None:
        error = state.error
        summary["error"] = {"rank": error.rank, "type": error.type, "message": error.message}
    return summary


def _only_known(summary: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures that a script may lack; None where they have no source."""
    sources_of = {"steps": "steps", "samples": "samples", "samples_per_s": "samples"}
    known = {key: summary[key] if sources.get(of) else None for key, of in sources_of.items()}
    return {"precision": None, "epochs": None} | known


def _explain_sources(
    sources: Mapping[str, str], missing: Mapping[str, str], config: RunConfig, plan: Plan | None
) -> dict[str, str]:
    """Return where each figure of a script comes from, or why there is none."""
    is_python = config.script.is_python or (plan is not None and plan.observed)
    unreported = NOT_REPORTED if is_python else NOT_PYTHON
    return {
        figure: sources.get(figure) or missing.get(figure, unreported)
        for figure in dict.fromkeys((*FIGURES, *sources))
    }


def _count_epochs(steps: int, facts: Facts) -> int | None:
    """Return the full epochs of the training once so many steps are finished.

    None where the training data are a stream, which has no epochs.
    """
    return floor(facts.epoch_at(steps)) if facts.has_epochs else None


def _throughput(totals: Iterable[dict[str, Any]]) -> float | None:
    """Return samples/s of the run: the sum of the ranks' own rates without warm-up.

    None where a rank has measured only warm-up.
    """
    return add_rates(
        total["timed_samples"] / total["timed_seconds"] if total["timed_seconds"] else None
        for total in totals
    )


def _item_rate(samples_per_s: float | None, facts: Facts | None) -> dict[str, Any]:
    """Return the rate in what the task counts, such as tokens; nothing where that is samples."""
    if facts is None or facts.item == SAMPLE:
        return {}
    rate = None if samples_per_s is None else samples_per_s * facts.items_per_sample
    return {"item": facts.item, "items_per_s": rate}


def _utilisation(
    samples_per_s: float | None, facts: Facts | None, plan: Plan | None
) -> dict[str, float]:
    """Return the MFU: FLOP/s that the model needs, as a share of what the GPUs reach at most.

    Nothing where the task does not set `flops_per_sample`, or the peak of a GPU is not known.
    """
    if not (samples_per_s and facts and facts.flops_per_sample and plan):
        return {}
    here = list(dict.fromkeys(plan.devices))  # ranks may share one
    peak = peak_flops(here, plan.precision)
    if not peak:
        return {}
    return {"mfu": samples_per_s * facts.flops_per_sample / (peak * plan.device_count / len(here))}


def _duration(started: float | None, ended: float | None) -> float | None:
    """Return seconds; those of a live run are 0 while the clock is before its start."""
    return None if started is None else max((ended or time.time()) - started, 0.0)
