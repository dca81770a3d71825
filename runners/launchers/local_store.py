"""The store at which the ranks of a single host meet, and which no other host can connect to.

By default a store of torch listens on all interfaces, and it has no password. torch's elastic agent
unpickles what it finds there, so whoever can connect could execute code.
"""

from __future__ import annotations

import socket

import torch
from torch.distributed import HashStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from distrain.runners.launchers.supervisor_link import LOOPBACK

BACKEND = "distrain"  # as torchrun's option --rdzv-backend names it


def open_local_store() -> TCPStore:
    """Return a store on the loopback interface, on a port that the system chooses."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        port = bound.getsockname()[1]
        descriptor = bound.detach()  # it is the store's
    return TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=descriptor,
        use_libuv=torch.__version__ >= "2.8",  # before, it cannot take over a socket
    )


class LocalRendezvous(RendezvousHandler):
    """The rendezvous of an elastic agent that is the only one of its run.

    Whenever it starts its ranks, they get a new store: the old one has the addresses of the ranks
    before them.
    """

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._ranks_store: TCPStore | None = None

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        self._ranks_store = open_local_store()
        place = RendezvousStoreInfo(LOOPBACK, self._ranks_store.port)
        return RendezvousInfo(HashStore(), 0, 1, place)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def register_rendezvous() -> None:
    """Make BACKEND known to torchrun; call this once in a process."""
    rendezvous_handler_registry.register(BACKEND, LocalRendezvous)
