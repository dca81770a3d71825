"""Which of a run's processes this is, by whoever started it."""

from __future__ import annotations

import os

import msgspec

# A rank's place by torch's names, and by those of Horovod, Open MPI and MPICH.
PLACES = {
    "RANK": ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "LOCAL_RANK": ("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    "WORLD_SIZE": ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
}

HAS_STORE = "DISTRAIN_HAS_STORE"  # whether the ranks' store is to be made by this one: True, False


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


def take_place() -> None:
    """Know this rank by torch's names for its place, whatever names its launcher has.

    torchrun numbers hosts anew at each meeting; ours keep their number, and with it their ranks.
    Its own rank 0 is still where the store is, unless that is the agent's.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False":
        os.environ[HAS_STORE] = str(os.environ["RANK"] == "0")
    if (node := os.environ.get("DISTRAIN_NODE")) and "GROUP_RANK" in os.environ:
        ranks, local = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
        os.environ |= {"GROUP_RANK": node, "RANK": str(int(node) * ranks + local)}
    for name, others in PLACES.items():
        known = [os.environ[other] for other in others if other in os.environ]
        if known:
            os.environ.setdefault(name, known[0])
