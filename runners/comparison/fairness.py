"""What contestants have in common and what they differ in; what of it makes them unequal.

Strategy, launcher and precision, with what belongs to them, are what is compared; a rate of
learning costs no time, and on the way to a target is one's way of training. All else must be equal:
model, data, batch, samples, loader workers and threads in total, seed, devices.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runners import words
from runners.comparison import Difference
from runners.config import RunConfig, flat
from runners.plan import Plan, cores

STRATEGYS_OWN = ("ddp.", "horovod.")
COMPARED = ("strategy", "launcher", "precision", "ranks", "dist.backend", *STRATEGYS_OWN)
NO_WORK = ("train.lr", "train.schedule", "train.warmup_epochs", "train.step_")
# Decides nothing of what is computed, or is compared as it turned out, in total.
IGNORED = (
    "description",
    "report.",
    "checkpoint.",
    "oversubscribe",
    *(f"dist.{name}" for name in ("timeout_s", "join_timeout_s", "max_restarts")),
    *(f"dist.{name}" for name in ("rendezvous", "node_rank", "init_method")),
    *(f"slurm.{name}" for name in ("account", "qos", "memory", "time")),
    *(f"slurm.{name}" for name in ("requeue", "warn_s", "poll_s", "report")),
)
EVALUATION = "eval."
PLANNED = ("devices", "train.threads", "train.scale_lr", "train.lr")


def settings(
    configs: Sequence[RunConfig], plans: Sequence[Plan], *, evaluated: bool = False
) -> tuple[dict[str, str], list[Difference]]:
    """What all have in common, as it is printed, and what they differ in, unfair first; where
    evaluations are `evaluated`, as on the way to a target, these must be equal too.
    """
    pairs = zip(configs, plans, strict=True)
    tables = [_told(config, plan, evaluated) for config, plan in pairs]
    equal, differences = {}, []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key) for table in tables]
        own = key.startswith(STRATEGYS_OWN)  # another strategy has no such key
        if len(set(values) - {None} if own else set(values)) > 1:
            fair = key.startswith((*COMPARED, *NO_WORK)) or key in _fair_of(plans)
            differences.append(Difference(key=key, values=values, fair=fair))
        elif key in _HEADLINES:
            equal[_HEADLINES[key]] = values[0] or words.MISSING
    return equal, sorted(differences, key=lambda each: each.fair)


def resources(plan: Plan) -> int:
    """What an efficiency is counted by: GPUs, or on CPU the cores that all threads can use."""
    if plan.devices[0].kind == "cuda":
        return len({device.uuid for device in plan.devices})
    return min(plan.world_size * plan.threads, cores())


_HEADLINES = {
    "model.name": "model",
    "data.name": "data",
    "data.train_limit": "samples",
    "train.batch_size": "global batch",
    "precision": "precision",
    "data.workers": "loader workers in total",
    "threads in total": "threads in total",
    "train.seed": "seed",
    "devices": "devices",
}


def _told(config: RunConfig, plan: Plan, evaluated: bool) -> dict[str, str | None]:
    keys = {
        key: value
        for key, value in flat(config.to_dict()).items()
        if _matters(key) and (evaluated or not key.startswith(EVALUATION))
    }
    told: dict[str, str | None] = {key: _text(value) for key, value in keys.items()}
    limit = config.data.train_limit
    told["data.train_limit"] = "all" if limit is None else f"the first {limit:,}"
    told["precision"] = plan.precision
    told["train.lr"] = f"{plan.lr:g}"
    told["ranks"] = str(plan.world_size)
    told["threads in total"] = str(plan.threads * plan.world_size)
    told["devices"] = _devices(plan)
    others = tuple(own for own in STRATEGYS_OWN if own != f"{config.strategy}.")
    return {key: value for key, value in told.items() if not key.startswith(others)}


def _matters(key: str) -> bool:
    return not key.startswith(IGNORED) and key not in PLANNED


def _devices(plan: Plan) -> str:
    """What trains: under gloo on CPU the ranks are a way to use the same cores."""
    if plan.devices[0].kind == "cpu":
        return "CPU"
    return ", ".join(sorted({device.label for device in plan.devices}))


def _fair_of(plans: Sequence[Plan]) -> tuple[str, ...]:
    """One process on one device against all of them is what a scaling is."""
    sets = [{device.uuid for device in plan.devices} for plan in plans]
    most = max(sets, key=len)
    return ("devices",) if all(len(one) == 1 or one == most for one in sets) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
