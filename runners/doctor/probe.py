"""The doctor's processes that load torch: its facts, and the ranks that try operations.

`python -m distrain.runners.doctor.probe facts` prints one JSON object; `… probe rank` prints one
JSON line per operation. `collectives` starts the ranks in pairs and bounds their time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from distrain.runners.system.processes import die_with_parent

LENGTH = 1000  # elements of a tensor
LATE_S = 0.3  # delay of rank 1 before the barrier


def main() -> int:
    die_with_parent(os.getppid())
    parser = argparse.ArgumentParser(prog="distrain.runners.doctor.probe")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("facts")
    rank = actions.add_parser("rank")
    rank.add_argument("--rank", type=int, required=True)
    rank.add_argument("--backend", required=True)
    rank.add_argument("--device", required=True)
    rank.add_argument("--store", required=True)
    rank.add_argument("--operations", nargs="+", required=True)
    options = parser.parse_args()
    if options.action == "facts":
        print(json.dumps(torch_facts()))
        return 0
    run_rank(options.rank, options.backend, options.device, options.store, options.operations)
    # Leaving a group that an operation broke may wait forever, and everything is printed.
    os._exit(0)


def torch_facts() -> dict[str, Any]:
    """Return what this torch is built with and can use: fields of `capabilities.HostFacts`."""
    built_in = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
        "ucc": dist.is_ucc_available(),
    }
    nccl = torch.cuda.nccl.version() if built_in["nccl"] else None
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "backends": built_in,
        "cuda_devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "cuda_problem": _cuda_problem(),
    }


def _cuda_problem() -> str:
    if torch.version.cuda is None or torch.cuda.is_available():
        return ""
    try:
        torch.cuda.init()
    except Exception as error:
        return first_line(error)
    return "torch gives no reason"


class Pair:
    """One of two ranks in their group. Values differ by operation and rank, and are exact."""

    def __init__(self, rank: int, device: torch.device, store: dist.Store) -> None:
        self.rank = rank
        self.other = 1 - rank
        self.device = device
        self.store = store
        self.round = 0  # the number of the operation

    def values(self, rank: int, part: int = 0) -> Tensor:
        """Return the tensor that `rank` contributes in this round; `part` is one of several."""
        start = 10 * self.round + 1000 * rank + 100_000 * part
        return torch.arange(start, start + LENGTH, dtype=torch.float32, device=self.device)

    def empty(self) -> Tensor:
        """Return a tensor to receive into; no contribution has its values."""
        return torch.full((LENGTH,), -1.0, device=self.device)


def _send(pair: Pair) -> bool:
    return _exchange(pair, sender=0)


def _recv(pair: Pair) -> bool:
    return _exchange(pair, sender=1)


def _exchange(pair: Pair, sender: int) -> bool:
    if pair.rank == sender:
        dist.send(pair.values(sender), dst=pair.other)
        return True
    received = pair.empty()
    dist.recv(received, src=sender)
    return torch.equal(received, pair.values(sender))


def _broadcast(pair: Pair) -> bool:
    tensor = pair.values(1) if pair.rank == 1 else pair.empty()
    dist.broadcast(tensor, src=1)
    return torch.equal(tensor, pair.values(1))


def _all_reduce(pair: Pair) -> bool:
    tensor = pair.values(pair.rank)
    dist.all_reduce(tensor)
    return torch.equal(tensor, pair.values(0) + pair.values(1))


def _reduce(pair: Pair) -> bool:
    tensor = pair.values(pair.rank)
    dist.reduce(tensor, dst=1)
    return pair.rank == 0 or torch.equal(tensor, pair.values(0) + pair.values(1))


def _all_gather(pair: Pair) -> bool:
    parts = [pair.empty(), pair.empty()]
    dist.all_gather(parts, pair.values(pair.rank))
    return all(torch.equal(parts[rank], pair.values(rank)) for rank in (0, 1))


def _gather(pair: Pair) -> bool:
    parts = [pair.empty(), pair.empty()] if pair.rank == 1 else None
    dist.gather(pair.values(pair.rank), parts, dst=1)
    return parts is None or all(torch.equal(parts[rank], pair.values(rank)) for rank in (0, 1))


def _scatter(pair: Pair) -> bool:
    parts = [pair.values(1, part=0), pair.values(1, part=1)] if pair.rank == 1 else None
    received = pair.empty()
    dist.scatter(received, parts, src=1)
    return torch.equal(received, pair.values(1, part=pair.rank))


def _reduce_scatter(pair: Pair) -> bool:
    received = pair.empty()
    dist.reduce_scatter(received, [pair.values(pair.rank, part=part) for part in (0, 1)])
    expected = pair.values(0, part=pair.rank) + pair.values(1, part=pair.rank)
    return torch.equal(received, expected)


def _all_to_all(pair: Pair) -> bool:
    received = [pair.empty(), pair.empty()]
    dist.all_to_all(received, [pair.values(pair.rank, part=part) for part in (0, 1)])
    return all(torch.equal(received[rank], pair.values(rank, part=pair.rank)) for rank in (0, 1))


def _barrier(pair: Pair) -> bool:
    """Check that rank 0 passes the barrier only after the late rank 1 has set its mark."""
    mark = f"late {pair.round}"
    if pair.rank == 1:
        time.sleep(LATE_S)
        pair.store.set(mark, "here")
    dist.barrier()
    return bool(pair.store.check([mark]))


OPERATIONS: dict[str, Callable[[Pair], bool]] = {
    "send": _send,
    "recv": _recv,
    "broadcast": _broadcast,
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
}


def run_rank(
    rank: int, backend: str, device_name: str, store_path: str, operations: list[str]
) -> None:
    """Join the pair's group, then try the operations in order.

    Prints {"ready": true}, then {"operation", "ok", "reason"} for each operation.
    """
    device = torch.device(device_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = dist.FileStore(store_path, 2)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("group", store),
        rank=rank,
        world_size=2,
        timeout=timedelta(minutes=10),
        device_id=device if backend == "nccl" else None,
    )
    pair = Pair(rank, device, dist.PrefixStore("marks", store))
    _print_message({"ready": True})
    for operation in operations:
        pair.round += 1
        _print_message({"operation": operation} | _try(pair, operation))


def _try(pair: Pair, operation: str) -> dict[str, Any]:
    try:
        is_right = OPERATIONS[operation](pair)
        if pair.device.type == "cuda":
            torch.cuda.synchronize()
    except Exception as error:
        return {"ok": False, "reason": first_line(error)}
    return {"ok": is_right, "reason": "" if is_right else "wrong result"}


def first_line(error: BaseException) -> str:
    """Return the message of an error, without torch's C++ location and stack."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition("] ")[2] if lines[0].startswith("[") else lines[0]


def _print_message(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
