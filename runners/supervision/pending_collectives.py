"""What the last collectives of the ranks say about which rank the others wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from distrain.runners.protocol.collectives import DEFAULT_GROUP
from distrain.runners.protocol.events import GroupCollectives

Collectives = Mapping[int, list[GroupCollectives]]  # of each rank that has answered


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
        calls: dict[int, dict[str, int]] = defaultdict(dict)
        for rank, member in sorted(members.items()):
            if member.pending_number is not None:
                calls[member.pending_number].setdefault(member.pending, rank)
        for number, ranks in calls.items():
            if len(ranks) > 1:
                each = [f"rank {rank} {call}" for call, rank in ranks.items()]
                return f"the ranks call different collectives as number {number}: {', '.join(each)}"
    return ""


def _by_group(collectives: Collectives) -> dict[str, dict[int, GroupCollectives]]:
    groups: dict[str, dict[int, GroupCollectives]] = defaultdict(dict)
    for rank, own in collectives.items():
        for group in own:
            groups[group.group][rank] = group
    return groups
