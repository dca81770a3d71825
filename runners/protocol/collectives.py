"""The last collectives of this process, from the flight recorder of torch.

`TORCH_FR_BUFFER_SIZE` turns the recorder on. Torch is not imported here: where the program has not
done so, there are no collectives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from distrain.runners.protocol.events.stacks import GroupCollectives

MODULE = "torch._C._distributed_c10d"
DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")  # of NCCL, and of other backends
DEFAULT_GROUP = "default_pg"


class Entry(msgspec.Struct):
    """An entry of a flight recorder, as far as it is read here; there are thousands."""

    process_group: tuple[str, str]  # its number and its description
    collective_seq_id: int
    retired: bool
    is_p2p: bool = False
    profiling_name: str = ""
    input_dtypes: list[str] = []
    input_sizes: list[list[int]] = []


class _Trace(msgspec.Struct):
    entries: list[Entry] = []


def read_collectives() -> list[GroupCollectives]:
    """Return the state of each process group in which this process has begun a collective."""
    return summarize(_entries())


def _entries() -> Iterable[Entry]:
    module = sys.modules.get(MODULE)
    for name in DUMPS:
        dump: Callable[[bool, bool], bytes] | None = getattr(module, name, None)
        if dump is None:
            continue
        # Its format belongs to torch and may change; stacks are sent without it too.
        with suppress(Exception):
            yield from msgspec.json.decode(dump(True, False), type=_Trace).entries


def summarize(entries: Iterable[Entry]) -> list[GroupCollectives]:
    """Return the state of each process group, given the entries of a flight recorder in order."""
    groups: dict[str, GroupCollectives] = {}
    for entry in entries:
        if entry.is_p2p:
            continue
        number, description = entry.process_group
        name = DEFAULT_GROUP if description == DEFAULT_GROUP else number
        group = groups.get(name, GroupCollectives(group=name))
        is_first_pending = not entry.retired and group.pending_number is None
        sequence = entry.collective_seq_id
        groups[name] = GroupCollectives(
            group=name,
            newest=max(group.newest, sequence),
            pending=_describe(entry) if is_first_pending else group.pending,
            pending_number=sequence if is_first_pending else group.pending_number,
        )
    return list(groups.values())


def _describe(entry: Entry) -> str:
    """Return name, types and sizes: "gloo:all_reduce Float[3, 5]"."""
    tensors = zip(entry.input_dtypes, entry.input_sizes, strict=False)
    return " ".join([entry.profiling_name, *(f"{dtype}{sizes}" for dtype, sizes in tensors)])
