"""`spawn`: ranks are children of one parent, by torch.multiprocessing."""

from __future__ import annotations

import os
import sys

from runners.launchers.parent import LOOPBACK, Parent
from runners.processes import without_collecting


def main() -> int:
    with Parent() as parent:
        with without_collecting():
            import torch.multiprocessing as mp
            from torch.distributed import TCPStore

        world = int(sys.argv[1])
        # The store lives here on a port the system chose, so runs never fight for one.
        store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
        os.environ |= {
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        context = mp.start_processes(
            _rank, args=(world,), nprocs=world, join=False, start_method="spawn"
        )
        try:
            while not context.join():
                pass
        except mp.ProcessRaisedException as error:
            parent.exited(error.error_index, error.error_pid, 1)
            return 1
        except mp.ProcessExitedException as error:
            parent.exited(error.error_index, error.error_pid, error.exit_code)
            return 1
    return 0


def _rank(rank: int, world: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    from runners.worker import main as work

    sys.exit(work())


if __name__ == "__main__":
    sys.exit(main())
