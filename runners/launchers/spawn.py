"""Launcher `spawn`: torch.multiprocessing starts the ranks as children of one process."""

from __future__ import annotations

import os
import sys
import tempfile

from distrain.runners.launchers.supervisor_link import LOOPBACK, SupervisorLink
from distrain.runners.system.processes import without_garbage_collection
from distrain.runners.system.scratch import scratch_parent


def main() -> int:
    with SupervisorLink() as link:
        with without_garbage_collection():
            import torch.multiprocessing as mp

            from distrain.runners.launchers.local_store import open_local_store

        world_size = int(sys.argv[1])
        # The store is kept here, on a port that the system chooses: runs never compete for one.
        store = open_local_store()
        os.environ |= {
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        # torch unpickles the error of a rank from a file whose name it has chosen before. In /tmp,
        # another user could make that file.
        tempfile.tempdir = scratch_parent()
        context = mp.start_processes(
            _run_rank, args=(world_size,), nprocs=world_size, join=False, start_method="spawn"
        )
        try:
            while not context.join():
                pass
        except mp.ProcessRaisedException as error:
            link.report_exit(error.error_index, error.error_pid, 1)
            return 1
        except mp.ProcessExitedException as error:
            link.report_exit(error.error_index, error.error_pid, error.exit_code)
            return 1
    return 0


def _run_rank(rank: int, world_size: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)}
    from distrain.runners.training.worker import main as run_worker

    sys.exit(run_worker())


if __name__ == "__main__":
    sys.exit(main())
