"""A supervisor whose ranks are plain scripts: `python plain_ranks.py RECORD SCRIPT`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from distrain.runners.launchers import command
from distrain.runners.supervision.supervisor import supervise


def supervisor(folder: str, script: str) -> None:
    command.launcher_command = lambda config, plan: [
        sys.executable,
        __file__,
        "--start",
        str(plan.world_size),
        script,
    ]
    asyncio.run(supervise(Path(folder), lambda: None))


def start(world: str, script: str) -> int:
    ranks = [
        subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world},
        )
        for rank in range(int(world))
    ]
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    if sys.argv[1] == "--start":
        sys.exit(start(*sys.argv[2:]))
    supervisor(*sys.argv[1:])
