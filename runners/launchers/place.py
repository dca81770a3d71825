"""Which of a run's processes this is, by whoever started it."""

from __future__ import annotations

import os

import msgspec


class Place(msgspec.Struct, frozen=True):
    """A node (-1: the supervisor numbers it), or one `rank` of it where each has a task."""

    node: int = -1
    rank: int | None = None
    local_rank: int = 0

    @classmethod
    def of_slurm(cls) -> Place:
        """Of a task of srun: of a whole node, unless there are several of them on it."""
        numbers = (int(os.environ[f"SLURM_{name}"]) for name in ("NODEID", "PROCID", "LOCALID"))
        node, rank, local = numbers
        return cls(node, rank, local) if os.environ.get("DISTRAIN_TASK") == "rank" else cls(node)

    @property
    def leads(self) -> bool:
        """Whether the others meet here."""
        return self.node == 0 and not self.rank

    def ranks(self, per_node: int) -> dict[int, int]:
        """The ranks that are started here, by local rank."""
        if self.rank is not None:
            return {self.local_rank: self.rank}
        return {local: self.node * per_node + local for local in range(per_node)}
