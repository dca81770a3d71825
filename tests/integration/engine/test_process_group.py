"""How long ranks wait for each other."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from distrain.runners.distributed.process_group import World

TIMEOUT = timedelta(seconds=5)


def _rank(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=TIMEOUT)
    world = World(rank, rank, 2, torch.device("cpu"), TIMEOUT * (5 if rank else 1))
    written = Path(folder) / "written"
    with world.waiting_for_leader():
        if world.is_leader:
            time.sleep(TIMEOUT.total_seconds() + 1)
            written.touch()
    assert written.exists()

    noticed = Path(folder) / "noticed"
    if world.is_leader:
        with pytest.raises(RuntimeError, match="Timed out"), world.waiting_for_leader():
            pass
        noticed.touch()
    while not noticed.exists():
        time.sleep(0.1)


def test_rank_0_may_keep_the_others_waiting_and_has_less_patience_itself(
    tmp_path: Path,
) -> None:
    mp.spawn(_rank, args=(str(tmp_path),), nprocs=2)
