"""What the figures of a run depend on: code, versions, machine, environment."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from distrain.runners.errors import DistrainError
from distrain.runners.system.devices import driver_version
from distrain.runners.system.host import count_cores
from distrain.runners.system.unbounded_call import call_within

PACKAGES = ("torch", "torchvision", "numpy", "msgspec", "textual", "distrain", "horovod")
MAX_DIFF = 1 << 20  # characters
GIT_S = 10.0  # a file system may be slow, and a changed file large
DRIVER_S = 30.0  # for a driver that must first be loaded; one that has a fault may never answer
# Prefixes of variables that change what a run computes or how fast; recorded with every run.
MATTERS = (
    "CUDA_",
    "NCCL_",
    "GLOO_",
    "OMP_",
    "MKL_",
    "TORCH",
    "PYTORCH_",
    "UCC_",
    "UCX_",
    "HOROVOD_",
)


def provenance(
    folder: Path, environment: dict[str, str], diff: str = "dirty.diff"
) -> dict[str, Any]:
    """Return what is known without torch; the ranks add versions of CUDA and NCCL (Facts).

    `environment` is that of the ranks; the variables that affect the figures are kept. Uncommitted
    changes of the current folder's repository are written to the file `diff` in `folder`.
    """
    return {
        "cwd": os.getcwd(),
        "git": _git(folder / diff),
        "versions": versions(),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "cpu": cpu_name(),
            "cores": psutil.cpu_count(logical=False),
            "threads": psutil.cpu_count(),
            "usable_threads": count_cores(),
            "memory": psutil.virtual_memory().total,
        },
        "environment": {
            name: value for name, value in environment.items() if name.startswith(MATTERS)
        },
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, driver and packages; absent ones are left out."""
    found = {"python": platform.python_version(), "implementation": sys.implementation.name}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    with suppress(TimeoutError):
        if driver := call_within(DRIVER_S, driver_version):
            found["driver"] = driver
    return found


def cpu_name() -> str:
    """Return the processor as the system names it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _git(diff_file: Path) -> dict[str, Any] | None:
    """Return what is known of the current folder's repository; None where there is none.

    `problem` tells what is not known or kept; `dirty` is None where git does not answer.
    """
    found: dict[str, Any] = {"commit": "", "branch": "", "dirty": None}
    try:
        commit = _run_git("rev-parse", "HEAD")
        if commit is None:
            return None
        found["commit"] = commit.strip()
        found["branch"] = (_run_git("rev-parse", "--abbrev-ref", "HEAD") or "").strip()
        diff = _run_git("diff", "HEAD", "--no-ext-diff", "--binary")
        if diff is None:
            raise DistrainError("git diff has failed")
    except DistrainError as error:
        what = "uncommitted changes" if found["commit"] else "commit"
        return found | {"problem": f"{what} unknown: {error}"}
    if diff:
        diff_file.write_text(diff[:MAX_DIFF], "utf-8")
    if len(diff) > MAX_DIFF:
        found["problem"] = f"only the first {MAX_DIFF:,} characters of them are kept"
    return found | {
        "dirty": bool(diff),
        "diff_complete": len(diff) <= MAX_DIFF,
        "diff_sha256": sha256(diff.encode()).hexdigest() if diff else "",
    }


def _run_git(*arguments: str) -> str | None:
    """Return what git prints, None where it fails. Raises DistrainError if it refuses to answer."""
    try:
        answer = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            timeout=GIT_S,
            encoding="utf-8",
            errors="replace",
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise DistrainError(f"git {arguments[0]} took more than {GIT_S:g} s") from None
    if answer.returncode and "safe.directory" in answer.stderr:  # in any language
        raise DistrainError("the repository belongs to another user (git config safe.directory)")
    return answer.stdout if answer.returncode == 0 else None
