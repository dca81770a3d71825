"""How long ranks wait for each other."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from distrain.runners.distributed.process_group import World

TIMEOUT_S = 5.0


def _rank(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    world = World(rank, rank, 2, torch.device("cpu"))
    written = Path(folder) / "written"
    with world.waiting_for_leader():
        if world.is_leader:
            time.sleep(TIMEOUT_S + 1)
            written.touch()
    assert written.exists()
    dist.destroy_process_group()


def test_ranks_wait_for_the_leader_longer_than_for_a_collective(tmp_path: Path) -> None:
    mp.spawn(_rank, args=(str(tmp_path),), nprocs=2)
