"""The sockets a supervisor listens on: a Unix socket for this host, TCP with a token for others."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from weakref import WeakSet

from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import (
    TOKEN_FILE_NAME,
    ServerAddresses,
    join_address,
    split_address,
)
from distrain.runners.supervision.connection import Connection, Listener, RefusalLog
from distrain.runners.system.scratch import scratch_folder

BACKLOG = 4096


@asynccontextmanager
async def serve(
    listener: Listener, folder: Path, address: str = "", known_token: str = ""
) -> AsyncIterator[ServerAddresses]:
    """Pass every connection to the listener.

    `address` is HOST or HOST:PORT of this host; without it only the Unix socket is served. TCP
    peers must send the token that lies in `folder`, readable for its owner alone: `known_token`
    where the peers know one already, else a new one.

    Raises DistrainError where the address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    connections = WeakSet[Connection]()
    ungreeted: dict[Connection, None] = {}
    refusals = RefusalLog()

    def connection(token: str = "") -> Connection:
        made = Connection(listener, token, ungreeted, refusals)
        connections.add(made)
        return made

    with scratch_folder() as private:
        path = f"{private}/socket"
        servers = [await loop.create_unix_server(connection, path, backlog=BACKLOG)]
        os.chmod(path, 0o600)
        token_file = folder / TOKEN_FILE_NAME
        remote = ""
        try:
            if address:
                _write_token(token_file, known_token or secrets.token_urlsafe(32))
                factory = partial(connection, token_file.read_text())
                servers.append(await _listen_on_tcp(factory, address))
                remote = _address_of(servers[-1].sockets[0])
            yield ServerAddresses(f"unix:{path}", remote)
        finally:
            for server in servers:
                server.close()
            for each in connections:
                each.close()
            await asyncio.sleep(0)  # they close in the loop's next turn
            token_file.unlink(missing_ok=True)


async def _listen_on_tcp(factory: Callable[[], Connection], address: str) -> asyncio.Server:
    """Listen on one concrete address: at another, the same port may be somebody else's."""
    host, port = split_address(address)
    try:
        number = await _resolve(host)
        return await asyncio.get_running_loop().create_server(
            factory, number, port, backlog=BACKLOG
        )
    except (OSError, OverflowError, ValueError) as error:  # a port has 16 bits
        reason = getattr(error, "strerror", None) or str(error)
        raise DistrainError(f"cannot listen on {address}: {reason}") from None


async def _resolve(host: str) -> str:
    """Return the first address of a host. Raises OSError, or ValueError for no or any host."""
    if not host:
        raise ValueError("no host is given")
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    address = str(found[0][4][0])
    if ip_address(address.partition("%")[0]).is_unspecified:
        raise ValueError("ranks need the address of one interface, not a wildcard")
    return address


def _address_of(bound: socket.socket) -> str:
    host, port, *_ = bound.getsockname()
    return f"tcp:{join_address(host, port)}"


def _write_token(file: Path, token: str) -> None:
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(token)
