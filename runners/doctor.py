"""What this machine and this installation can do, and what to do about what they cannot.

Loads no torch: whatever needs it runs in processes of its own, with bounded time, so that a
broken installation is a line of the report and not a crash.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from runners import words
from runners.capabilities import (
    BACKENDS,
    LAUNCHERS,
    STRATEGIES,
    Check,
    Facts,
    not_applicable,
    pair_devices,
)
from runners.devices import driver_version, gpus, nvml, torch_build, why_no_gpu
from runners.horovod.presence import presence
from runners.operations import OPERATIONS, PROGRAM, Cell, environment, probe_operations
from runners.provenance import cpu_name
from runners.slurm.survey import survey

if TYPE_CHECKING:
    from rich.console import Console

FACTS_S = 180


def diagnose(told: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The whole report as plain data; takes some seconds, and minutes where operations hang.

    `versions` by name (None: not installed), `devices` (memory in bytes), `strategies`,
    `launchers` and `backends` ({usable, why, mend} by name), `operations`: for each backend and
    device kind the `cells` by operation ({answer: yes, no, hangs or n/a; reason}), `slurm` as
    `slurm.survey` has it. `told` hears what is being done.
    """
    told("loading torch")
    facts = _facts()
    operations = _operations(facts, told)
    facts = msgspec.structs.replace(facts, failed=_failed(operations))
    return {
        "versions": _versions(facts),
        "devices": _devices(facts),
        "strategies": _verdicts(STRATEGIES, facts),
        "launchers": _verdicts(LAUNCHERS, facts),
        "backends": _verdicts(BACKENDS, facts),
        "operations": operations,
        "slurm": survey(),
    }


def _facts() -> Facts:
    with nvml():
        there, no_gpu = gpus(), why_no_gpu()
    about = {
        "gpus": there,
        "no_gpu": no_gpu,
        "horovod": presence(afresh=True),
        "sbatch": shutil.which("sbatch") is not None,
    }
    return msgspec.convert({**_ask_torch(), **about}, Facts)


def _ask_torch() -> dict[str, Any]:
    if not torch_build():
        return {"problem": "it is not installed"}
    try:
        done = subprocess.run(
            [*PROGRAM, "facts"],
            env=environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FACTS_S,
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"loading it did not end within {FACTS_S} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"problem": lines[-1]}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _versions(facts: Facts) -> dict[str, str | None]:
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
    """What the installed distrain asks for, extras left out."""
    try:
        wanted = metadata.requires("distrain") or []
    except metadata.PackageNotFoundError:
        return ["torch", "torchvision"]
    return [re.split(r"[^\w.-]", line)[0] for line in wanted if "extra ==" not in line]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices(facts: Facts) -> dict[str, Any]:
    return {
        "gpus": msgspec.to_builtins(facts.gpus),
        "no_gpu": facts.no_gpu or facts.cuda_problem,
        "cpu": cpu_name(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "usable_threads": len(psutil.Process().cpu_affinity())
        if sys.platform == "linux"
        else psutil.cpu_count(),
        "memory": psutil.virtual_memory().total,
    }


def _verdicts(checks: dict[str, Check], facts: Facts) -> dict[str, Any]:
    verdicts: dict[str, Any] = {
        name: msgspec.to_builtins(check(facts)) for name, check in checks.items()
    }
    return verdicts


def _operations(facts: Facts, told: Callable[[str], None]) -> list[dict[str, Any]]:
    table = []
    for backend in BACKENDS:
        for kind in ("cpu", "cuda"):
            if reason := not_applicable(backend, kind, facts):
                cells = dict.fromkeys(OPERATIONS, Cell("n/a", reason))
            else:
                told(f"trying {backend} on {kind}")
                cells = probe_operations(backend, pair_devices(kind, facts))
            table.append({"backend": backend, "device": kind, "cells": msgspec.to_builtins(cells)})
    return table


def _failed(operations: list[dict[str, Any]]) -> dict[str, str]:
    """Backends that were tried and cannot even reduce, with the reason."""
    tried: dict[str, list[dict[str, str]]] = {}
    for group in operations:
        if (cell := group["cells"]["all_reduce"])["answer"] != "n/a":
            tried.setdefault(group["backend"], []).append(cell)
    return {
        backend: cells[0]["reason"]
        for backend, cells in tried.items()
        if not any(cell["answer"] == "yes" for cell in cells)
    }


# --- for a person ------------------------------------------------------------------------------

ANSWERS = {"yes": "green", "no": "red", "hangs": "bold red", "n/a": "dim"}


def render(report: dict[str, Any], console: Console) -> None:
    """Print the report as tables that fit 80 columns."""
    from rich.padding import Padding

    parts = [
        _headed("Versions", _pairs(_version_lines(report["versions"]))),
        _headed("Devices", _pairs(_device_lines(report["devices"]))),
        _headed("Slurm", _pairs(_slurm_lines(report["slurm"]))),
        *(
            _headed(title, _verdict_table(report[title.lower()]))
            for title in ("Strategies", "Launchers", "Backends")
        ),
        _headed("Operations between two processes", _operation_table(report["operations"])),
        _reasons(report["operations"]),
    ]
    for part in parts:
        console.print(Padding(part, (0, 0, 1, 0)))


def _headed(title: str, content: Any) -> Any:
    from rich.console import Group
    from rich.text import Text

    return Group(Text(title, style="bold"), content)


def _pairs(lines: list[tuple[str, str]]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def _version_lines(versions: dict[str, str | None]) -> list[tuple[str, str]]:
    return [(name, version or "none") for name, version in versions.items()]


def _device_lines(devices: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        (f"GPU {gpu['index']}", f"{gpu['name']}, {_gib(gpu['memory'])}, {gpu['uuid']}")
        for gpu in devices["gpus"]
    ]
    if devices["no_gpu"]:
        lines.append(("GPU", f"none usable: {devices['no_gpu']}"))
    cores = f"{devices['usable_threads']} of {devices['threads']} threads usable"
    return [*lines, ("CPU", f"{devices['cpu']}, {cores}"), ("memory", _gib(devices["memory"]))]


def _slurm_lines(slurm: dict[str, Any]) -> list[tuple[str, str]]:
    if slurm["version"] is None:
        return [("Slurm", f"none: {slurm['why']}")]
    lines = [("version", slurm["version"])]
    for each in slurm["partitions"]:
        gpus = f", {each['gpus']} each" if each["gpus"] else ", no GPUs"
        nodes = words.things(int(each["nodes"]), "node")
        lines.append((each["name"], f"{nodes}{gpus}, time limit {each['limit']}"))
    if slurm["address"]:
        lines.append(("nodes report", f"to {slurm['address']}, this host"))
    return [*lines, ("trouble", slurm["why"])] if slurm["why"] else lines


def _gib(size: int | None) -> str:
    return "memory N/A" if size is None else f"{size / 2**30:.1f} GiB"


def _verdict_table(verdicts: dict[str, Any]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", min_width=9)
    table.add_column(min_width=3)
    table.add_column(overflow="fold")
    for name, verdict in verdicts.items():
        answer = "yes" if verdict["usable"] else "no"
        said = "; ".join(text for text in (verdict["why"], verdict["mend"]) if text)
        table.add_row(name, Text(answer, style=ANSWERS[answer]), said)
    return table


def _operation_table(groups: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", style="cyan", no_wrap=True)
    for group in groups:
        table.add_column(f"{group['backend']}\n{group['device']}", min_width=5)
    for operation in OPERATIONS:
        answers = [group["cells"][operation]["answer"] for group in groups]
        table.add_row(operation, *(Text(answer, style=ANSWERS[answer]) for answer in answers))
    return table


def _reasons(groups: list[dict[str, Any]]) -> Any:
    """Why a cell is not "yes", once for all operations of a column that share the reason."""
    lines = []
    for group in groups:
        shared: dict[tuple[str, str], list[str]] = {}
        for operation, cell in group["cells"].items():
            if cell["answer"] != "yes":
                shared.setdefault((cell["answer"], cell["reason"]), []).append(operation)
        for (answer, reason), operations in shared.items():
            which = "" if len(operations) == len(OPERATIONS) else f"{', '.join(operations)}: "
            lines.append((f"{group['backend']} {group['device']}", f"{which}{answer}, {reason}"))
    return _pairs(lines)
