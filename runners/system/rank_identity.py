"""Which process of a run this one is, from what its launcher or scheduler has set."""

from __future__ import annotations

import os

import msgspec

# torch's names of the variables that identify a rank, with those of Horovod, Open MPI and MPICH.
RANK_VARIABLES = {
    "RANK": ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "LOCAL_RANK": ("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    "WORLD_SIZE": ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
}

HAS_STORE = "DISTRAIN_HAS_STORE"  # "True" in the rank that creates the store of all ranks
FIRST_HOST = "DISTRAIN_FIRST_HOST"  # its address, where torchrun keeps no store for the ranks


class AgentIdentity(msgspec.Struct, frozen=True):
    """The identity of a node agent, which starts the ranks of a host.

    `node` is -1 where the supervisor numbers the hosts. Where every rank has an agent of its own,
    `rank` and `local_rank` are those of its rank.
    """

    node: int = -1
    rank: int | None = None
    local_rank: int = 0

    @classmethod
    def from_slurm(cls) -> AgentIdentity:
        """Return the identity of this task of srun, which is responsible for a host or a rank."""
        node, rank, local_rank = (
            int(os.environ[name]) for name in ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
        )
        if os.environ.get("DISTRAIN_TASK") == "rank":
            return cls(node, rank, local_rank)
        return cls(node)

    @property
    def is_leader(self) -> bool:
        """Whether the ranks of all hosts meet at this agent's host."""
        return self.node == 0 and not self.rank

    def ranks(self, per_node: int) -> dict[int, int]:
        """Return the ranks that this agent starts, by local rank."""
        if self.rank is not None:
            return {self.local_rank: self.rank}
        return {local: self.node * per_node + local for local in range(per_node)}


def set_rank_variables() -> None:
    """Set torch's variables RANK, LOCAL_RANK and WORLD_SIZE from those of this rank's launcher.

    torchrun may number the hosts differently each time that they meet. Here hosts keep their
    numbers, and with them their ranks. torchrun's own rank 0 still creates the store, unless the
    agent has.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False":
        os.environ[HAS_STORE] = str(os.environ["RANK"] == "0")
    if (node := os.environ.get("DISTRAIN_NODE")) and "GROUP_RANK" in os.environ:
        ranks_per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        local_rank = int(os.environ["LOCAL_RANK"])
        os.environ["GROUP_RANK"] = node
        os.environ["RANK"] = str(int(node) * ranks_per_node + local_rank)
    for name, others in RANK_VARIABLES.items():
        for other in others:
            if other in os.environ:
                os.environ.setdefault(name, os.environ[other])


def meet_at_first_host() -> None:
    """Let the ranks of a script meet where their rank 0 is, which creates their store.

    torchrun names the host of its own rank 0, which may be another one.
    """
    if host := os.environ.pop(FIRST_HOST, ""):  # a run within the run has its own
        os.environ["MASTER_ADDR"] = host
