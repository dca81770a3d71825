"""Where a supervisor is spoken to: a Unix socket for this host, TCP with a token for others."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from weakref import WeakSet

from runners.connecting import TOKEN, Endpoint, joined, split
from runners.errors import DistrainError
from runners.line import Line, Listener

BACKLOG = 4096


@asynccontextmanager
async def listening(
    listener: Listener, folder: Path, place: str = "", known: str = ""
) -> AsyncIterator[Endpoint]:
    """Hand every connection to the listener. `place` is HOST or HOST:PORT of an address of this
    host; who speaks there must know the token, which lies in the folder for its owner alone: a new
    one, unless others know one already.

    Raises DistrainError where that cannot be listened on.
    """
    loop, lines, strangers = asyncio.get_running_loop(), WeakSet[Line](), dict[Line, None]()

    def line(token: str = "") -> Line:
        lines.add(made := Line(listener, token, strangers))
        return made

    with tempfile.TemporaryDirectory(prefix="distrain-", dir=_short_folder()) as private:
        path = f"{private}/socket"
        servers = [await loop.create_unix_server(line, path, backlog=BACKLOG)]
        os.chmod(path, 0o600)
        token, remote = folder / TOKEN, ""
        try:
            if place:
                _keep(token, known or secrets.token_urlsafe(32))
                servers.append(await _for_others(partial(line, token.read_text()), place))
                remote = _address(servers[-1].sockets[0])
            yield Endpoint(f"unix:{path}", remote)
        finally:
            for server in servers:
                server.close()
            for link in lines:
                link.close()
            await asyncio.sleep(0)  # they close in the loop's next turn
            token.unlink(missing_ok=True)


async def _for_others(line: Callable[[], Line], place: str) -> asyncio.Server:
    """On one address: what ranks are told must be ours, and not be anybody's port of another."""
    host, port = split(place)
    try:
        address = await _resolved(host)
        return await asyncio.get_running_loop().create_server(line, address, port, backlog=BACKLOG)
    except (OSError, OverflowError, ValueError) as error:  # a port has 16 bits
        why = getattr(error, "strerror", None) or str(error)
        raise DistrainError(f"{place} cannot be listened on: {why}") from None


async def _resolved(host: str) -> str:
    """The first address of a host. Raises OSError, or ValueError where it is none of one host."""
    if not host:
        raise ValueError("it names no host")
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    address = str(found[0][4][0])
    if ip_address(address.partition("%")[0]).is_unspecified:
        raise ValueError("that is every address, and ranks must be told one")
    return address


def _address(bound: socket.socket) -> str:
    host, port, *_ = bound.getsockname()
    return f"tcp:{joined(host, port)}"


def _keep(file: Path, token: str) -> None:
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(token)


def _short_folder() -> str | None:
    """Where a socket can be: its path has 107 bytes, and some schedulers' TMPDIR is long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < 70 else "/tmp"
