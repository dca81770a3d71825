"""Which settings the candidates share, in which they differ, and which of these are unfair.

Strategy, launcher and precision, with their own settings, are what is compared. The learning rate
does not affect speed; with a target it is part of the candidate. Everything else must be equal:
model, data, batch, samples, loader workers and threads in total, seed, devices.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Difference
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig, flatten
from distrain.runners.system.host import count_cores

STRATEGY_SECTIONS = ("ddp.", "horovod.")
COMPARED = ("strategy", "launcher", "precision", "ranks", "dist.backend", *STRATEGY_SECTIONS)
WITHOUT_COST = ("train.lr", "train.schedule", "train.warmup_epochs", "train.step_")
IGNORED = (  # without influence on what is computed
    "description",
    "code_dir",
    "report.",
    "checkpoint.",
    "oversubscribe",
    *(f"dist.{name}" for name in ("timeout_s", "join_timeout_s", "max_restarts")),
    *(f"dist.{name}" for name in ("rendezvous", "node_rank", "init_method")),
    *(f"slurm.{name}" for name in ("account", "qos", "memory", "time")),
    *(f"slurm.{name}" for name in ("requeue", "warn_s", "poll_s", "report")),
)
EVALUATION = "eval."
PLANNED = ("devices", "train.threads", "train.scale_lr", "train.lr")  # compared as in the plan
EQUAL_LABELS = {  # the settings that are printed when they are equal
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


def compare_settings(
    configs: Sequence[RunConfig], plans: Sequence[Plan], *, evaluated: bool = False
) -> tuple[dict[str, str], list[Difference]]:
    """Return the main settings that are equal, by label, and all differences, unfair ones first.

    `evaluated`: evaluations are part of what is measured, so their settings must be equal too.
    """
    tables = [
        _settings(config, plan, evaluated) for config, plan in zip(configs, plans, strict=True)
    ]
    equal = {}
    differences = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key) for table in tables]
        distinct = set(values)
        if key.startswith(STRATEGY_SECTIONS):
            distinct -= {None}  # other strategies do not have this key
        if len(distinct) > 1:
            fair = key.startswith((*COMPARED, *WITHOUT_COST))
            if key == "devices":
                fair = _is_scaling(plans)
            differences.append(Difference(key=key, values=values, fair=fair))
        elif key in EQUAL_LABELS:
            equal[EQUAL_LABELS[key]] = values[0] or formatting.MISSING
    return equal, sorted(differences, key=lambda difference: difference.fair)


def count_resources(plan: Plan) -> int:
    """Return what efficiency is relative to: GPUs, or on CPU the cores that the threads can use."""
    if plan.devices[0].kind == "cuda":
        return len({device.uuid for device in plan.devices})
    return min(plan.world_size * plan.threads, count_cores())


def _settings(config: RunConfig, plan: Plan, evaluated: bool) -> dict[str, str | None]:
    table: dict[str, str | None] = {}
    for key, value in flatten(config.to_dict()).items():
        if key in PLANNED or key.startswith(IGNORED):
            continue
        if evaluated or not key.startswith(EVALUATION):
            table[key] = value if isinstance(value, str) else json.dumps(value)
    limit = config.data.train_limit
    table["data.train_limit"] = "all" if limit is None else f"the first {limit:,}"
    table["precision"] = plan.precision
    table["train.lr"] = f"{plan.lr:g}"
    table["ranks"] = str(plan.world_size)
    table["threads in total"] = str(plan.threads * plan.world_size)
    table["devices"] = _format_devices(plan)
    foreign = tuple(name for name in STRATEGY_SECTIONS if name != f"{config.strategy}.")
    return {key: value for key, value in table.items() if not key.startswith(foreign)}


def _format_devices(plan: Plan) -> str:
    if plan.devices[0].kind == "cpu":
        return "CPU"  # CPU ranks share the same cores, however many they are
    return ", ".join(sorted({device.label for device in plan.devices}))


def _is_scaling(plans: Sequence[Plan]) -> bool:
    """Return whether one device is compared with all of them, which is what scaling measures."""
    device_sets: list[set[Any]] = [{device.uuid for device in plan.devices} for plan in plans]
    largest = max(device_sets, key=len)
    return all(len(devices) == 1 or devices == largest for devices in device_sets)
