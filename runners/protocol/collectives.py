"""The last collectives of this process, from the flight recorder of torch.

`TORCH_FR_BUFFER_SIZE` turns the recorder on. Torch is not imported here: where the program has not
done so, there are no collectives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from distrain.runners.protocol.events.stacks import GroupCollectives

MODULE = "torch._C._distributed_c10d"
DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")  # of NCCL, and of other backends
DEFAULT_GROUP = "default_pg"


def read_collectives() -> list[GroupCollectives]:
    """Return the state of each process group in which this process has begun a collective."""
    # Its format belongs to torch and may change; stacks are sent without it too.
    with suppress(Exception):
        return summarize(_entries())
    return []


def _entries() -> Iterable[Mapping[str, Any]]:
    module = sys.modules.get(MODULE)
    for name in DUMPS:
        dump: Callable[[bool, bool], bytes] | None = getattr(module, name, None)
        if dump is None:
            continue
        with suppress(Exception):
            yield from json.loads(dump(True, False)).get("entries", [])


def summarize(entries: Iterable[Mapping[str, Any]]) -> list[GroupCollectives]:
    """Return the state of each process group, given the entries of a flight recorder in order."""
    groups: dict[str, GroupCollectives] = {}
    for entry in entries:
        if entry.get("is_p2p"):
            continue
        number, description = entry["process_group"]
        name = DEFAULT_GROUP if description == DEFAULT_GROUP else str(number)
        group = groups.get(name, GroupCollectives(group=name))
        sequence = int(entry["collective_seq_id"])
        is_first_pending = not entry["retired"] and group.pending_number is None
        groups[name] = GroupCollectives(
            group=name,
            newest=max(group.newest, sequence),
            pending=_describe(entry) if is_first_pending else group.pending,
            pending_number=sequence if is_first_pending else group.pending_number,
        )
    return list(groups.values())


def _describe(entry: Mapping[str, Any]) -> str:
    """Return name, types and sizes: "gloo:all_reduce Float[3, 5]"."""
    tensors = zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
    return " ".join([entry["profiling_name"], *(f"{dtype}{sizes}" for dtype, sizes in tensors)])
