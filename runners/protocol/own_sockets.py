"""Sockets in a process whose program may close all descriptors that it finds."""

from __future__ import annotations

import os
import socket


class OwnSockets:
    """Knows which descriptors are still ours: the program may have opened others of that number."""

    def __init__(self) -> None:
        self._inodes: dict[socket.socket, int] = {}

    def add(self, end: socket.socket) -> socket.socket:
        self._inodes[end] = os.fstat(end.fileno()).st_ino
        return end

    def are_open(self) -> bool:
        """Return whether the program has closed none of them."""
        return all(map(self.is_open, [*self._inodes]))

    def is_open(self, end: socket.socket) -> bool:
        """Return whether the program has not closed this one."""
        try:
            return os.fstat(end.fileno()).st_ino == self._inodes[end]
        except (OSError, KeyError):
            return False

    def close(self) -> None:
        """Close those that the program has not closed."""
        for end in [*self._inodes]:
            if self.is_open(end):
                end.close()
            else:
                end.detach()
        self._inodes.clear()
