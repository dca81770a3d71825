"""Small benches, and what is alive of one."""

from __future__ import annotations

from typing import Any

import psutil

from runners import bench
from runners.bench import Bench
from runners.bench.definition import Definition
from runners.config import RunConfig

QUICK = {"train.threads": 1, "devices": "cpu:1", "strategy": "single", "launcher": "inline"}


def config(**changes: Any) -> RunConfig:
    """A config of one process that starts soon, with dotted keys changed (`__` for the dot)."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return RunConfig().with_changes({**QUICK, **dotted})


def definition(configs: dict[str, RunConfig], **rules: Any) -> Definition:
    return bench.make(configs, {"repeats": 2, "seconds": 0.3, **rules})


def processes_of(one: Bench) -> list[psutil.Process]:
    """The bench's own process, and those of its runs, that live."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = str(one.dir) in (process.environ().get("DISTRAIN_RUN") or "")
            if ours or any(str(one.dir) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]
