"""What this machine and this installation can do, as plain data.

Loads no torch: whatever needs it runs in processes of its own, within bounded time, so that a
broken installation is a line of the report and not a crash.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib import metadata
from typing import Any

import msgspec
import psutil

from distrain.runners.doctor.capabilities import (
    BACKENDS,
    LAUNCHERS,
    STRATEGIES,
    CapabilityCheck,
    HostFacts,
    pair_devices,
    why_not_applicable,
)
from distrain.runners.doctor.collectives import (
    OPERATIONS,
    PROGRAM,
    OperationResult,
    probe_environment,
    try_operations,
)
from distrain.runners.doctor.slurm import describe_slurm
from distrain.runners.horovod.presence import presence
from distrain.runners.system.devices import driver_version, gpus, nvml, torch_build, why_no_gpu
from distrain.runners.system.host import count_cores, memory
from distrain.runners.system.provenance import cpu_name

TORCH_TIMEOUT_S = 180


def run_survey(on_progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Return the whole report. Takes some seconds, and minutes if operations hang.

    `versions`: by name; None if it is not installed.
    `devices`: GPUs (memory in bytes), CPU and memory.
    `strategies`, `launchers`, `backends`: {usable, why, mend} by name.
    `operations`: for each backend and device kind the `cells` by operation: {answer, reason},
    where the answer is "yes", "no", "hangs" or "n/a".
    `slurm`: see `slurm.describe_slurm`.

    `on_progress` is called with a short description of each step as it begins.
    """
    on_progress("loading torch")
    facts = gather_facts()
    operations = _try_backends(facts, on_progress)
    slurm = describe_slurm()
    facts = msgspec.structs.replace(
        facts, failed=_failed_backends(operations), slurm_problem=slurm["why"]
    )
    return {
        "versions": versions(facts),
        "devices": _devices(facts),
        "strategies": _check_all(STRATEGIES, facts),
        "launchers": _check_all(LAUNCHERS, facts),
        "backends": _check_all(BACKENDS, facts),
        "operations": operations,
        "slurm": slurm,
    }


def gather_facts() -> HostFacts:
    """Return what is known about this host before any backend is tried."""
    with nvml():
        host = {"gpus": gpus(), "no_gpu": why_no_gpu()}
    software = {
        "horovod": presence(refresh=True),
        "sbatch": shutil.which("sbatch") is not None,
    }
    return msgspec.convert({**_torch_facts(), **host, **software}, HostFacts)


def _torch_facts() -> dict[str, Any]:
    """Return what a process that loads torch finds, or its `problem`."""
    if not torch_build():
        return {"problem": "it is not installed"}
    try:
        done = subprocess.run(
            [*PROGRAM, "facts"],
            env=probe_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TORCH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"its import did not end within {TORCH_TIMEOUT_S} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"problem": lines[-1]}
    # Libraries may have printed lines before.
    facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return facts


def versions(facts: HostFacts) -> dict[str, str | None]:
    """Return the versions of distrain, Python, the system and all dependencies."""
    return {
        "distrain": _version("distrain"),
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: _version(name) for name in _dependencies()},
        "horovod": _version("horovod"),
        "CUDA of torch": facts.cuda or torch_build().get("cuda"),
        "NCCL": facts.nccl,
        "NVIDIA driver": driver_version(),
    }


def _dependencies() -> list[str]:
    """Return the required packages of the installed distrain, without those of extras."""
    try:
        requirements = metadata.requires("distrain") or []
    except metadata.PackageNotFoundError:
        return ["torch", "torchvision"]
    return [re.split(r"[^\w.-]", line)[0] for line in requirements if "extra ==" not in line]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices(facts: HostFacts) -> dict[str, Any]:
    return {
        "gpus": msgspec.to_builtins(facts.gpus),
        "no_gpu": facts.no_gpu or facts.cuda_problem,
        "cpu": cpu_name(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "usable_threads": count_cores(),
        "memory": memory().total,
    }


def _check_all(checks: dict[str, CapabilityCheck], facts: HostFacts) -> dict[str, Any]:
    return {name: msgspec.to_builtins(check(facts)) for name, check in checks.items()}


def _try_backends(facts: HostFacts, on_progress: Callable[[str], None]) -> list[dict[str, Any]]:
    table = []
    for backend in BACKENDS:
        for kind in ("cpu", "cuda"):
            if reason := why_not_applicable(backend, kind, facts):
                results = dict.fromkeys(OPERATIONS, OperationResult("n/a", reason))
            else:
                on_progress(f"trying {backend} on {kind}")
                results = try_operations(backend, pair_devices(kind, facts))
            cells = msgspec.to_builtins(results)
            table.append({"backend": backend, "device": kind, "cells": cells})
    return table


def _failed_backends(operations: list[dict[str, Any]]) -> dict[str, str]:
    """Return the backends whose all-reduce worked on no device, with the reason."""
    tried: dict[str, list[dict[str, str]]] = {}
    for column in operations:
        cell = column["cells"]["all_reduce"]
        if cell["answer"] != "n/a":
            tried.setdefault(column["backend"], []).append(cell)
    return {
        backend: cells[0]["reason"]
        for backend, cells in tried.items()
        if not any(cell["answer"] == "yes" for cell in cells)
    }
