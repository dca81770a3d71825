"""What the last collectives of the ranks say about which rank the others wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from distrain.runners.protocol.collectives import DEFAULT_GROUP
from distrain.runners.protocol.events import GroupCollectives

Collectives = Mapping[int, list[GroupCollectives]]  # of each rank that has answered

UNEVEN = ("all_to_all", "gather", "scatter")  # tensors may differ between ranks


def pending_of(groups: list[GroupCollectives]) -> GroupCollectives | None:
    """Return the group in which a rank waits, else the one in which it has done most."""
    waiting = [group for group in groups if group.pending_number is not None]
    return max(waiting or groups, key=lambda group: group.newest, default=None)


def find_behind(collectives: Collectives) -> set[int]:
    """Return the ranks that have not begun a collective in which others of their group wait.

    Every rank belongs to the default group; to another one only those that have used it. Of several
    groups, a rank that is behind in one may itself wait in another for a rank that is behind there:
    it is left out, unless all wait for each other.
    """
    behind: set[int] = set()
    waiting: set[int] = set()
    for name, members in _by_group(collectives).items():
        if name == DEFAULT_GROUP:
            members = {rank: GroupCollectives(group=name) for rank in collectives} | members
        pending = {r: m.pending_number for r, m in members.items() if m.pending_number is not None}
        oldest = min(pending.values(), default=0)
        if late := {rank for rank, member in members.items() if member.newest < oldest}:
            behind |= late
            waiting |= pending.keys()
    return behind - waiting or behind


def describe_mismatch(collectives: Collectives) -> str:
    """Return which different collectives ranks wait in under the same number; "" if they agree."""
    for members in _by_group(collectives).values():
        calls: dict[int, dict[str, str]] = defaultdict(dict)
        for rank, member in sorted(members.items()):
            if member.pending_number is not None:
                call = f"rank {rank} {member.pending}"
                calls[member.pending_number].setdefault(_common_part(member.pending), call)
        for number, different in calls.items():
            if len(different) > 1:
                each = ", ".join(different.values())
                return f"the ranks call different collectives as number {number}: {each}"
    return ""


def _common_part(call: str) -> str:
    """Return the part of "gloo:all_reduce Float[3, 5]" in which calls of all ranks agree."""
    name, _, _ = call.partition(" ")
    return name if name.partition(":")[2] in UNEVEN else call


def _by_group(collectives: Collectives) -> dict[str, dict[int, GroupCollectives]]:
    groups: dict[str, dict[int, GroupCollectives]] = defaultdict(dict)
    for rank, own in collectives.items():
        for group in own:
            groups[group.group][rank] = group
    return groups
