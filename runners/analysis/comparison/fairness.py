"""Which settings the candidates share, in which they differ, and which of these are unfair.

Strategy, launcher and precision, with their own settings, are what is compared. The learning rate
does not affect speed; with a target it is part of the candidate. Everything else must be equal:
model, data, batch, samples, loader workers and threads in total, seed, devices. Of scripts only
what they declare with `distrain.init(config=…)` is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Difference
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.toml import flatten
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
    *(f"dist.{name}" for name in ("timeout_s", "leader_timeout_s", "join_timeout_s")),
    "dist.max_restarts",
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
    "script": "script",
}
DECLARED_NAMES = {  # by which a script may declare a setting of presets
    "model": "model.name",
    "data": "data.name",
    "train_samples": "data.train_limit",
    "global_batch": "train.batch_size",
    "precision": "precision",
    "seed": "train.seed",
}
OWN_PARTS = ("model", "data")  # which a task may have in place of those of the config
GLOBAL_BATCH = "global_batch"
_DECLARED_KEYS = {key: name for name, key in DECLARED_NAMES.items()}
WORDS = ("script.path", "script.module", "script.args")  # the parts of a command line
DECLARED = "config."  # before the name of anything else that a script declares
UNCHECKED = ("script", DECLARED)  # what these mean is not known
Declared = Mapping[str, Any]
OPTIMIZER_STEPS = "optimizer steps"
STEP_KIND = "steps (counted)"
SAMPLES_PER_STEP = "samples per step (measured)"
SAME_SAMPLES = 0.1  # smaller differences of samples per step come from incomplete batches


class Reported(NamedTuple):
    """What the runs of a candidate have shown.

    `declared`: what a script declares, or what a task has in place of the config's network and
    data. `samples_per_step`: of all ranks. `step_kind`: what counts as a step.
    """

    declared: Mapping[str, Any] = {}
    samples_per_step: float | None = None
    step_kind: str = OPTIMIZER_STEPS


class Settings(NamedTuple):
    """The main settings that are equal, by label, all differences, and what is not checked."""

    equal: dict[str, str]
    differences: list[Difference]
    unchecked: list[str]


def compare_candidates(
    configs: Sequence[RunConfig],
    plans: Sequence[Plan],
    reported: Sequence[Reported | None],
    *,
    evaluated: bool = False,
) -> Settings:
    """Return how settings compare, unfair differences first; `evaluated` as below.

    `reported` is None for a candidate that has not been measured. Where not every script declares
    its global batch, the samples per step are compared.
    """
    declared = [each.declared if each else {} for each in reported]
    equal, differences = compare_settings(configs, plans, evaluated=evaluated, declared=declared)
    measured = [each for each in reported if each]
    scripts = [
        each.declared
        for config, each in zip(configs, reported, strict=True)
        if config.is_script and each
    ]
    unchecked = find_unchecked(scripts) if len(configs) > 1 else []
    samples = [each.samples_per_step for each in measured if each.samples_per_step is not None]
    has_all_samples = len(samples) == len(measured)
    if len({each.step_kind for each in measured}) > 1:
        kinds = [each.step_kind if each else None for each in reported]
        differences.insert(0, Difference(key=STEP_KIND, values=kinds, fair=has_all_samples))
    elif GLOBAL_BATCH in unchecked and has_all_samples:
        unchecked.remove(GLOBAL_BATCH)
        if max(samples) <= (1 + SAME_SAMPLES) * min(samples):
            equal[SAMPLES_PER_STEP] = formatting.figure(max(samples))
        else:
            values = [_format_samples(each) for each in reported]
            differences.insert(0, Difference(key=SAMPLES_PER_STEP, values=values, fair=False))
    return Settings(equal, differences, unchecked)


def _format_samples(reported: Reported | None) -> str | None:
    samples = reported.samples_per_step if reported else None
    return None if samples is None else formatting.figure(samples)


def compare_settings(
    configs: Sequence[RunConfig],
    plans: Sequence[Plan],
    *,
    evaluated: bool = False,
    declared: Sequence[Declared] = (),
) -> tuple[dict[str, str], list[Difference]]:
    """Return the main settings that are equal, by label, and all differences, unfair ones first.

    `evaluated`: evaluations are part of what is measured, so their settings must be equal too.
    `declared`: what each script has passed to `distrain.init`; of a task its own network and data.
    """
    tables = [
        _script_settings(config, plan, given)
        if config.is_script
        else _settings(config, plan, evaluated) | _own_parts(given, declared)
        for config, plan, given in zip(configs, plans, declared or [{}] * len(configs), strict=True)
    ]
    are_scripts = [config.is_script for config in configs]
    equal = {}
    differences = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key) for table in tables]
        distinct = set(values)
        if key.startswith(STRATEGY_SECTIONS):
            distinct -= {None}  # other strategies do not have this key
        if any(are_scripts) and not key.startswith(UNCHECKED):
            distinct -= {None}  # not declared, so not checked
        if len(distinct) > 1:
            is_checked = not key.startswith(UNCHECKED)
            fair = not is_checked or key.startswith((*COMPARED, *WITHOUT_COST))
            if key == "devices":
                fair = _is_scaling(plans)
            if all(are_scripts):
                key = _DECLARED_KEYS.get(key, key)
            differences.append(Difference(key=key, values=values, fair=fair, checked=is_checked))
        elif key in EQUAL_LABELS and None not in values:
            equal[EQUAL_LABELS[key]] = values[0] or formatting.MISSING
    return equal, sorted(differences, key=lambda difference: difference.fair)


def find_unchecked(scripts: Sequence[Declared]) -> list[str]:
    """Return the names of what must be equal, but is not declared by every script."""
    return [name for name in DECLARED_NAMES if not all(name in declared for declared in scripts)]


def count_resources(plan: Plan, host_cores: int) -> int:
    """Return what efficiency is relative to: GPUs, or on CPU the cores that the threads can use.

    `host_cores` are those of each host; if 0 (unknown), those of this one. What a scheduler assigns
    is not known here.
    """
    if plan.devices[0].kind == "cuda":
        return plan.device_count
    threads = plan.world_size * plan.threads
    if plan.scheduled or plan.tasks:
        return threads
    return min(threads, plan.nodes * (host_cores or count_cores()))


def _settings(config: RunConfig, plan: Plan, evaluated: bool) -> dict[str, str | None]:
    table: dict[str, str | None] = {}
    for key, value in flatten(config.to_dict()).items():
        if key in PLANNED or key.startswith(IGNORED):
            continue
        if evaluated or not key.startswith(EVALUATION):
            table[key] = value if isinstance(value, str) else json.dumps(value)
    limit = config.data.train_limit
    table["data.train_limit"] = "all" if limit is None else str(limit)
    table["precision"] = plan.precision
    table["train.lr"] = f"{plan.lr:g}"
    table["ranks"] = str(plan.world_size)
    table["threads in total"] = str(plan.threads * plan.world_size)
    table["devices"] = _format_devices(plan)
    foreign = tuple(name for name in STRATEGY_SECTIONS if name != f"{config.strategy}.")
    return {key: value for key, value in table.items() if not key.startswith(foreign)}


def _own_parts(own: Declared, declared: Sequence[Declared]) -> dict[str, str | None]:
    """Return a task's own network and data, where these are known of all that are compared."""
    return {
        DECLARED_NAMES[name]: _format_declared(own[name])
        for name in OWN_PARTS
        if own.get(name) and all(each.get(name) for each in declared)
    }


def _script_settings(config: RunConfig, plan: Plan, declared: Declared) -> dict[str, str | None]:
    """Return the settings of a script: command line, what it declares, ranks and devices."""
    table: dict[str, str | None] = {"script": config.workload}
    for key, value in flatten(config.to_dict()).items():
        if key not in (*WORDS, *PLANNED) and not key.startswith(IGNORED):
            table[key] = value if isinstance(value, str) else json.dumps(value)
    for name, value in declared.items():
        key = DECLARED_NAMES.get(name) or DECLARED + formatting.single_line(name)
        table[key] = _format_declared(value)
    return table | {"ranks": str(plan.world_size), "devices": _format_devices(plan)}


def _format_declared(value: Any) -> str:
    """Return a value as those of presets are written: 128.0 is 128."""
    is_whole = isinstance(value, float) and value.is_integer()
    return formatting.single_line(str(int(value) if is_whole else value))


def _format_devices(plan: Plan) -> str:
    if plan.devices[0].kind == "cpu":
        return "CPU"  # CPU ranks share the same cores, however many they are
    return ", ".join(sorted({device.label for device in plan.devices}))


def _is_scaling(plans: Sequence[Plan]) -> bool:
    """Return whether one device is compared with all of them, which is what scaling measures."""
    device_sets: list[set[Any]] = [
        {device.uuid or device.label for device in plan.devices} for plan in plans
    ]
    largest = max(device_sets, key=len)
    return all(len(devices) == 1 or devices == largest for devices in device_sets)
