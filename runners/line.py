"""One connection of the supervisor: bytes in, events out; strangers are hung up on."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import sys
import time
from contextlib import suppress
from hmac import compare_digest
from typing import Protocol

import msgspec

from runners import words
from runners.connecting import notice_silence
from runners.events import VERSION, Event, Hello, decode, encode
from runners.processes import descriptors

LONGEST = 1 << 20  # bytes of one line; a traceback fits many times
LONGEST_OF_A_STRANGER = 1 << 12
TOO_LONG = "a line is longer than {:,} bytes"
UNANSWERED = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
GREET_S = 30.0  # a busy host may take a while
_inbox = memoryview(bytearray(1 << 16))  # for all connections: emptied before the next is read


class Listener(Protocol):
    def heard(self, link: Line, event: Event) -> None: ...
    def left(self, link: Line) -> None: ...


class Line(asyncio.BufferedProtocol):
    """Splits lines, checks the greeting, hands events on.

    `strangers` have not greeted yet, the oldest first, among all connections that share them.
    `rank` and `host` are set by the listener. `heard_at` is when something came last (Unix
    seconds). One that has ended is `silent` where the other host answered no more. What comes over
    one that is `forgotten` is of the past.
    """

    def __init__(
        self, listener: Listener, token: str = "", strangers: dict[Line, None] | None = None
    ) -> None:
        self._listener = listener
        self._token = token
        self._strangers = {} if strangers is None else strangers
        self._rest = b""
        self._greeted = self._refused = False
        self._transport: asyncio.Transport | None = None
        self.rank: int | None = None
        self.host = ""
        self.heard_at = time.time()
        self.silent = self.forgotten = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        link = transport.get_extra_info("socket")
        if link.family != socket.AF_UNIX:
            notice_silence(link)
        elif not _is_ours(link):
            transport.abort()
        self._greeting = asyncio.get_running_loop().call_later(GREET_S, self._keeps_silent)
        self._strangers[self] = None
        if len(self._strangers) > descriptors() // 2:  # the others need some, too
            next(iter(self._strangers)).refuse("too many others have come, and it has not greeted")

    def get_buffer(self, _: int) -> memoryview:
        return _inbox

    def buffer_updated(self, count: int) -> None:
        self.heard_at = time.time()
        *lines, self._rest = (self._rest + _inbox[:count]).split(b"\n")
        for line in lines:
            if len(line) > self._longest:
                return self.refuse(TOO_LONG.format(self._longest))
            try:
                event = decode(line)
            except (msgspec.MsgspecError, RecursionError) as error:
                return self.refuse(f"not an event{f': {error}' if self._greeted else ''}")
            if self._refused:
                return None
            if not self._greeted and not self._welcome(event):
                return None
            self._listener.heard(self, event)
        if len(self._rest) > self._longest:
            self.refuse(TOO_LONG.format(self._longest))
        return None

    @property
    def _longest(self) -> int:
        return LONGEST if self._greeted else LONGEST_OF_A_STRANGER

    def _welcome(self, event: Event) -> bool:
        if not isinstance(event, Hello) or not compare_digest(
            event.token.encode(), self._token.encode()
        ):
            self.refuse("the first line must be a hello with this run's token")
        elif event.version != VERSION:
            self.refuse(f"protocol {event.version} is not spoken here, only {VERSION}")
        else:
            self._greeted = True
            self._knows_us()
        return self._greeted

    def _knows_us(self) -> None:
        self._greeting.cancel()
        self._strangers.pop(self, None)

    def _keeps_silent(self) -> None:
        self.refuse(f"no hello came within {GREET_S:g} s")

    def refuse(self, why: str) -> None:
        """Hang up, and say why in the supervisor's log."""
        self._refused = True
        self._strangers.pop(self, None)
        with suppress(OSError):  # a full disk is no reason to keep the line
            print(f"connection refused: {words.line(why)}", file=sys.stderr, flush=True)
        if self._transport:
            self._transport.abort()

    def forget(self) -> None:
        """Hang up, and hear no more of what is on the way."""
        self.forgotten = True
        self.close()

    def close(self) -> None:
        """Hang up once all is sent."""
        if self._transport:
            self._transport.close()

    def connection_lost(self, why: Exception | None) -> None:
        self._knows_us()
        self.silent = isinstance(why, OSError) and why.errno in UNANSWERED
        if self._greeted:
            self._listener.left(self)

    def send(self, event: Event) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(encode(event))


def _is_ours(link: socket.socket) -> bool:
    """Whether the peer of a Unix socket runs as the same user (TCP peers show a token)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(uid == os.getuid())
