"""`torchrun`: the elastic agent of torch.distributed.run, asked for how each rank ended."""

from __future__ import annotations

import sys
import tempfile

from runners.launchers.parent import LOOPBACK, Parent
from runners.processes import without_collecting


def main() -> int:
    # Left to itself, the agent makes a folder in /tmp for every run and keeps it.
    with Parent() as parent, tempfile.TemporaryDirectory(prefix="distrain-torchrun-") as logs:
        with without_collecting():
            from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
            from torch.distributed.run import parse_args, run

        arguments = [
            f"--nproc-per-node={sys.argv[1]}",
            "--nnodes=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={LOOPBACK}:0",
            f"--local-addr={LOOPBACK}",
            "--max-restarts=0",
            f"--log-dir={logs}",
            "-m",
            "runners.worker",
        ]
        try:
            run(parse_args(arguments))
        except ChildFailedError as error:
            for rank, failure in error.failures.items():
                parent.exited(rank, failure.pid, failure.exitcode)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
