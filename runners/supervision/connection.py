"""One connection to the supervisor: bytes in, events out.

A peer that does not greet correctly, or that sends anything but the events of its role, is
disconnected. Only of ranks such a line is skipped: a value that cannot be recorded must not end
training.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import time
import traceback
from contextlib import suppress
from hmac import compare_digest
from typing import Protocol

from distrain.runners import formatting
from distrain.runners.protocol.client import (
    PEER_CHECK_S,
    enable_keepalive,
    is_same_user,
    is_silent,
)
from distrain.runners.protocol.events import VERSION, Event, Hello, Notice, decode, encode
from distrain.runners.protocol.roles import refusal
from distrain.runners.system.processes import descriptor_limit

MAX_LINE_BYTES = 1 << 20  # many times the length of a traceback
MAX_HELLO_BYTES = 1 << 12
MAX_REASON = 400  # characters
PEER_TIMEOUT_ERRORS = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
HELLO_TIMEOUT_S = 30.0  # a busy host may need a while
MAX_LAST_READS = 64  # of a connection that is closed: a peer could go on writing
NOT_JSON = b"\xff"
MAX_REFUSALS = 100  # that are written to the log one by one
# What is read of one connection in a second; a rank sends some tens of short lines.
MAX_LINES_PER_S = 10_000
MAX_BYTES_PER_S = 1 << 24
MAX_UNREAD_BYTES = 1 << 24  # that wait for a peer, beyond what the kernel keeps
_receive_buffer = memoryview(bytearray(1 << 16))  # shared: emptied before the next read


class Listener(Protocol):
    """Receives the events of connections that have sent a valid hello."""

    def received(self, connection: Connection, event: Event) -> None: ...
    def disconnected(self, connection: Connection) -> None: ...


class RefusalLog:
    """Writes to the supervisor's log why connections were refused: the first ones, then ever fewer.

    Whoever reaches the port can be refused thousands of times a second, which must not fill the
    disk.
    """

    def __init__(self) -> None:
        self._count = 0

    def add(self, reason: str) -> None:
        self._count += 1
        number = ""
        if self._count > MAX_REFUSALS:
            if self._count.bit_count() > 1:  # only powers of two
                return
            number = f" (number {self._count:,})"
        with suppress(OSError):  # a full disk must not keep the connection open
            print(
                f"connection refused{number}: {formatting.single_line(reason)}",
                file=sys.stderr,
                flush=True,
            )


class Connection(asyncio.BufferedProtocol):
    """Splits the bytes of a connection into lines, checks the hello and passes events on.

    `ungreeted` holds the connections that have not sent a valid hello, oldest first; all
    connections of a server share it and `refusals`. The listener sets `rank` and `host`.
    `last_received` is the Unix time at which bytes arrived last. `timed_out` is true once the
    connection ended because the other host did not answer any more. Events of a connection that
    is `discarded` belong to an earlier attempt and are to be ignored.
    """

    def __init__(
        self,
        listener: Listener,
        token: str = "",
        ungreeted: dict[Connection, None] | None = None,
        refusals: RefusalLog | None = None,
    ) -> None:
        self._listener = listener
        self._token = token
        self._ungreeted = {} if ungreeted is None else ungreeted
        self._refusals = refusals or RefusalLog()
        self._partial_line = b""
        self._second_began = 0.0  # of the limits of the rate
        self._lines = self._bytes = 0
        self._has_greeted = False
        self._hello = Hello()
        self._has_skipped = False
        self._is_refused = False
        self._transport: asyncio.Transport | None = None
        self._peer_timer: asyncio.TimerHandle | None = None
        self.rank: int | None = None
        self.host = ""
        self.last_received = time.time()
        self.timed_out = False
        self.discarded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("socket")
        if peer.family != socket.AF_UNIX:
            enable_keepalive(peer)
            self._check_peer(peer)
        elif not is_same_user(peer):
            transport.abort()
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._on_hello_timeout)
        self._ungreeted[self] = None
        if len(self._ungreeted) > descriptor_limit() // 2:  # keep the rest for greeted connections
            next(iter(self._ungreeted)).refuse("too many connections that have not sent a hello")

    def _check_peer(self, peer: socket.socket) -> None:
        """Disconnect a host that does not respond, now and every second."""
        assert self._transport
        if is_silent(peer):
            self.timed_out = True
            self._transport.abort()
        else:
            loop = asyncio.get_running_loop()
            self._peer_timer = loop.call_later(PEER_CHECK_S, self._check_peer, peer)

    def get_buffer(self, _: int) -> memoryview:
        return _receive_buffer

    def buffer_updated(self, count: int) -> None:
        self.last_received = time.time()
        received = self._partial_line + _receive_buffer[:count]
        *lines, self._partial_line = received.split(b"\n")
        self._limit_rate(len(lines), count)
        for line in lines:
            event = self._read(line)
            if event is not None and self._accepts(event):
                self._pass_on(event)
            if self._is_refused:
                return
        if self._is_too_long(self._partial_line):
            self._partial_line = NOT_JSON  # so that the rest of this line is skipped too

    def _limit_rate(self, lines: int, size: int) -> None:
        """Read nothing for the rest of a second in which a peer has sent too much.

        So it keeps neither other peers nor the supervisor's own work waiting. Nothing is lost: the
        peer waits, and a reporter merges its windows meanwhile.
        """
        now = time.monotonic()
        if now - self._second_began >= 1.0:
            self._second_began, self._lines, self._bytes = now, 0, 0
        self._lines += lines
        self._bytes += size
        if self._lines > MAX_LINES_PER_S or self._bytes > MAX_BYTES_PER_S:
            assert self._transport is not None
            self._transport.pause_reading()
            pause_s = self._second_began + 1.0 - now
            asyncio.get_running_loop().call_later(pause_s, self._transport.resume_reading)

    def _read(self, line: bytes) -> Event | None:
        """Return the event of a line; None of one that is skipped or refused."""
        if self._is_too_long(line):
            return None
        try:
            return decode(line)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            self._reject(f"not an event{f': {error}' if self._has_greeted else ''}")
            return None

    def _accepts(self, event: Event) -> bool:
        """Return whether this peer may send an event now; one that it may not is rejected."""
        if not self._has_greeted:
            return self._check_hello(event)
        if reason := refusal(self._hello, event):
            self._reject(reason)
        return not reason

    def _pass_on(self, event: Event) -> None:
        try:
            self._listener.received(self, event)
        except Exception as error:  # the messages after it are more important
            with suppress(OSError):
                traceback.print_exc()
            self._reject(f"{type(error).__name__}: {error}")

    def _is_too_long(self, line: bytes) -> bool:
        is_too_long = len(line) > self._max_line_bytes
        if is_too_long:
            self._reject(f"a line is longer than {self._max_line_bytes:,} bytes")
        return is_too_long

    def _reject(self, reason: str) -> None:
        """Skip a line of a rank, with one notice; disconnect any other peer."""
        if not (self._has_greeted and self._hello.role == "rank"):
            self.refuse(reason)
        elif not self._has_skipped:
            self._has_skipped = True
            text = skipped_message(f"rank {self.rank}", reason)
            self._listener.received(self, Notice(time=time.time(), rank=self.rank, text=text))

    @property
    def is_from_another_host(self) -> bool:
        """Whether the peer has another address than this host, although perhaps the same name."""
        if self._transport is None:
            return False
        peer, own = map(self._transport.get_extra_info, ("peername", "sockname"))
        return bool(peer) and peer[0] != own[0]

    @property
    def _max_line_bytes(self) -> int:
        return MAX_LINE_BYTES if self._has_greeted else MAX_HELLO_BYTES

    def _check_hello(self, event: Event) -> bool:
        """Return whether the first event is a hello with the right token and version."""
        if not isinstance(event, Hello) or not compare_digest(
            event.token.encode(), self._token.encode()
        ):
            self.refuse("the first line must be a hello with this run's token")
        elif event.version != VERSION:
            reason = f"protocol version {event.version} is not supported, only {VERSION}"
            self._send_reason(f"{reason}: install the version of distrain that started the run")
            self.refuse(reason)
        else:
            self._has_greeted = True
            self._hello = event
            self._stop_waiting_for_hello()
        return self._has_greeted

    def _stop_waiting_for_hello(self) -> None:
        self._hello_timer.cancel()
        self._ungreeted.pop(self, None)

    def _on_hello_timeout(self) -> None:
        self.refuse(f"no hello within {HELLO_TIMEOUT_S:g} s")

    def refuse(self, reason: str) -> None:
        """Disconnect at once and write the reason to the supervisor's log.

        A peer that has sent a valid hello is sent the reason too.
        """
        if self._has_greeted:
            self._send_reason(reason)
        self._is_refused = True
        self._ungreeted.pop(self, None)
        self._refusals.add(reason)
        if self._transport:
            self._transport.abort()

    def _send_reason(self, reason: str) -> None:
        """Send why the connection ends, as far as that is possible without waiting."""
        if self._transport and not self._transport.is_closing():
            self._transport.write(encode(Notice(time=time.time(), text=reason)))

    def discard(self) -> None:
        """Disconnect; whatever still arrives is to be ignored."""
        self.discarded = True
        self.close()

    def close(self) -> None:
        """Disconnect once everything is sent."""
        if self._transport:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting_for_hello()
        if self._peer_timer:
            self._peer_timer.cancel()
        if isinstance(error, BrokenPipeError | ConnectionResetError) and not self._is_refused:
            self._receive_rest()
        self.timed_out |= isinstance(error, OSError) and error.errno in PEER_TIMEOUT_ERRORS
        if self._has_greeted:
            self._listener.disconnected(self)

    def _receive_rest(self) -> None:
        """Receive what the peer sent before it closed.

        asyncio reads no more once writing has failed, but the socket is still open here.
        """
        assert self._transport
        descriptor = self._transport.get_extra_info("socket").fileno()
        with suppress(OSError):
            for _ in range(MAX_LAST_READS):
                count = os.readv(descriptor, [_receive_buffer])
                if not count or self._is_refused:
                    return
                self.buffer_updated(count)

    def send(self, event: Event) -> None:
        """Send an event; one that comes after the end of the connection is dropped.

        A peer that keeps sending requests and never reads the answers is disconnected.
        """
        if self._transport and not self._transport.is_closing():
            if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
                self.refuse("it does not read its messages")
            else:
                self._transport.write(encode(event))


def skipped_message(source: str, reason: str) -> str:
    """Return the notice of a message that could not be recorded."""
    return f"a message of {source} was skipped: {formatting.single_line(reason)[:MAX_REASON]}"
