"""The connections of the ranks that train in the current attempt."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import psutil

from distrain.runners.protocol.events import Event, Hello
from distrain.runners.supervision.connection import Connection
from distrain.runners.system.processes import is_running


class RankConnections:
    """Knows the connection of each rank, and the processes of the ranks on this host.

    `host` is the name of this host. `pids` maps ranks to processes on this host, `distant_pids` to
    those on other hosts, whose numbers mean nothing here. `joined` maps the ranks that have joined
    by themselves, because the program has started or executed another one, to their processes;
    `programs` are the connections of programs that have handed their rank over to such a process.
    A launcher that restarts the ranks of several hosts ends all of them before it starts any, so
    those that have connected since one has left may belong to the next attempt (`take_newest`).
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self.by_rank: dict[int, Connection] = {}
        self.pids: dict[int, int] = {}
        self.distant_pids: dict[int, int] = {}
        self._leaving: dict[int, psutil.Process] = {}
        self.joined: dict[int, int] = {}
        self.programs: set[Connection] = set()
        self._have_greeted: set[int] = set()
        self._any_has_left = False
        self._newest: dict[Connection, Hello] = {}  # since one has left

    def __bool__(self) -> bool:
        return bool(self.by_rank)

    def __contains__(self, rank: int) -> bool:
        return rank in self.by_rank

    @property
    def any_has_greeted(self) -> bool:
        """Whether a rank of this attempt has connected, even if it has left again."""
        return bool(self._have_greeted)

    def has_greeted(self, rank: int) -> bool:
        return rank in self._have_greeted

    def add(self, connection: Connection, hello: Hello) -> None:
        connection.rank = hello.rank
        connection.host = hello.host
        self.by_rank[hello.rank] = connection
        self._have_greeted.add(hello.rank)
        if self._any_has_left:
            self._newest[connection] = hello
        if hello.pid <= 0:
            return
        if hello.host in ("", self._host) and not connection.is_from_another_host:
            self.pids[hello.rank] = hello.pid
            self._leaving.pop(hello.rank, None)
        else:
            self.distant_pids[hello.rank] = hello.pid

    def is_plain(self, connection: Connection) -> bool:
        """Return whether what a connection sends about its rank is recorded as it is.

        Its hello was accepted, and a connection of a rank sends nothing about other ranks.
        """
        rank = connection.rank
        return rank is not None and rank not in self.joined and connection not in self.programs

    def is_alive(self, rank: int) -> bool:
        """Return whether a rank is connected, and its process is not known to be gone."""
        pid = self.pids.get(rank)
        return rank in self.by_rank and (pid is None or is_running(pid, None))

    @property
    def any_is_alive(self) -> bool:
        return any(self.is_alive(rank) for rank in self.by_rank)

    def hand_over(self, rank: int) -> None:
        """Take a rank from the program that distrain has started, for a process of that program."""
        if rank in self.by_rank and rank not in self.joined:
            self.programs.add(self.by_rank.pop(rank))
            self.pids.pop(rank, None)
            self.distant_pids.pop(rank, None)

    def remove(self, connection: Connection) -> int | None:
        """Remove a connection that has ended; return its rank, None if it is no rank's."""
        self.programs.discard(connection)
        rank = connection.rank
        if rank is None or self.by_rank.get(rank) is not connection:
            return None
        del self.by_rank[rank]
        self._any_has_left = True
        self._newest.clear()
        self.distant_pids.pop(rank, None)
        if pid := self.pids.pop(rank, None):
            with suppress(psutil.Error):
                self._leaving[rank] = psutil.Process(pid)
        return rank

    @property
    def leaving(self) -> dict[int, int]:
        """The processes on this host whose connection has ended and that have not exited."""
        return {rank: each.pid for rank, each in self._leaving.items() if _exists(each)}

    @property
    def processes(self) -> dict[int, int]:
        """The processes of ranks on this host that have not exited, connected or not."""
        return self.pids | self.leaving

    def broadcast(self, event: Event) -> None:
        for connection in self.by_rank.values():
            connection.send(event)

    def close(self, ended: Collection[int]) -> None:
        """Disconnect ranks that have nothing left to report."""
        for rank, connection in self.by_rank.items():
            if rank in ended:
                connection.close()

    def take_newest(self) -> dict[Connection, Hello]:
        """Take out the ranks that have connected since a rank has left, to be added again."""
        newest, self._newest = self._newest, {}
        for connection, hello in newest.items():
            if self.by_rank.get(hello.rank) is connection:
                del self.by_rank[hello.rank]
        return newest

    def discard_all(self) -> None:
        """Disconnect all ranks and forget them: their processes are started again."""
        for connection in self.by_rank.values():
            connection.discard()
        self.by_rank.clear()
        self.pids.clear()
        self.distant_pids.clear()
        self._leaving.clear()
        self.joined.clear()
        self._have_greeted.clear()
        self._any_has_left = False
        self._newest.clear()


def _exists(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
