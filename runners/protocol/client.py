"""The client's end of a connection to a supervisor: addresses, tokens, connecting."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import (
    Event,
    Hello,
    Notice,
    StackRequest,
    Stacks,
    decode,
    encode,
)

CHUNK = 1 << 16
TOKEN_FILE_NAME = "token"  # in the record
TOKEN_FILE_VARIABLE = "DISTRAIN_TOKEN_FILE"  # the environment variable that names another file
LONGEST_TOKEN = 4096  # characters in a file that a user names, which may have no end
SILENT_HOST_S = 45  # after which the connection to a host that does not respond is closed
_PROBES = 8  # the last one shortly before the connection is closed: the network may work again
_ANSWER_S = 2  # for the answer to a packet
# The bytes before tcpi_last_data_sent and tcpi_last_ack_recv in Linux's struct tcp_info.
_LAST_SENT_AT, _LAST_ACK_AT = 44, 56
_INFO_BYTES = _LAST_ACK_AT + 4
PEER_CHECK_S = 1.0  # how often each end asks whether the other host is silent


class ServerAddresses(NamedTuple):
    """Where a supervisor listens.

    `local` is "unix:PATH"; `remote` is "tcp:HOST:PORT", or empty where only this host can connect.
    """

    local: str
    remote: str = ""


def connect(address: str, seconds: float = 10.0) -> socket.socket:
    """Connect to `unix:PATH` or `tcp:HOST:PORT`; raises OSError after so many seconds."""
    kind, _, rest = address.partition(":")
    deadline = time.monotonic() + seconds
    while True:
        try:
            if kind == "unix":
                return _connect_unix(rest, max(0.01, deadline - time.monotonic()))
            connection = socket.create_connection(split_address(rest), timeout=seconds)
            connection.settimeout(None)
            enable_keepalive(connection)
            return connection
        except (BlockingIOError, ConnectionRefusedError):
            # A full backlog refuses, or is busy: a thousand ranks may connect at once.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _connect_unix(path: str, seconds: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(seconds)
    try:
        connection.connect(path)
        if not is_same_user(connection):
            raise PermissionError(errno.EACCES, "the socket is that of another user")
    except OSError:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the other end of a Unix socket runs as this user (TCP peers show a token)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, also of "[::1]:80"; the port is 0 where none is given."""
    host, _, port = address.rpartition(":")
    is_ipv6_without_port = ":" in host and not host.endswith("]")
    if not port.isdecimal() or is_ipv6_without_port:
        return address.strip("[]"), 0
    return host.strip("[]"), int(port)


def join_address(host: str, port: int | str) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(text: str) -> bool:
    """Return whether the text is HOST:PORT."""
    host, port = split_address(text)
    return bool(host) and 0 < port < 1 << 16


def enable_keepalive(connection: socket.socket) -> None:
    """Make the kernel probe the other host of a TCP connection: see `is_silent`.

    A host that lost its network or power does not close its connections. The kernel itself closes
    those on which nothing waits to be sent. TCP_USER_TIMEOUT would close the others, but also
    those to a host that responds while a busy or suspended process there reads nothing.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    interval = SILENT_HOST_S // (_PROBES + 1)
    options = {"TCP_KEEPIDLE": interval, "TCP_KEEPINTVL": interval, "TCP_KEEPCNT": _PROBES}
    for name, value in options.items():
        if hasattr(socket, name):  # Linux
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_silent(connection: socket.socket) -> bool:
    """Return whether the other host of a TCP connection has not responded for SILENT_HOST_S.

    It may take twice as long until that is known. Always false where the system is not Linux.
    """
    if sys.platform != "linux":
        return False
    return has_no_response(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES))


def has_no_response(tcp_info: bytes) -> bool:
    """Return whether Linux's struct tcp_info is that of a connection to a silent host.

    The time since the last acknowledgement is not enough: a host on which nobody reads is probed
    ever more rarely. So more than one packet that asks for an answer must be without one; the
    answer to a single one may be on its way. Data is sent again ever more rarely too, and meanwhile
    the network may work again. So data must have been sent after SILENT_HOST_S.
    """
    retransmits, probes = tcp_info[2:4]
    (last_sent_ms,) = struct.unpack_from("I", tcp_info, _LAST_SENT_AT)
    (last_ack_ms,) = struct.unpack_from("I", tcp_info, _LAST_ACK_AT)
    limit_ms = 1000 * SILENT_HOST_S
    is_unanswered = last_sent_ms > 1000 * _ANSWER_S and last_ack_ms - last_sent_ms > limit_ms
    return retransmits + probes > 1 and (is_unanswered or last_ack_ms > 2 * limit_ms)


def read_own_token() -> str:
    """Return the token of the run that this process belongs to, or "" without one.

    Raises OSError where its file cannot be read.
    """
    file = os.environ.get(TOKEN_FILE_VARIABLE)
    return os.environ.get("DISTRAIN_TOKEN") or (Path(file).read_text().strip() if file else "")


def read_user_token() -> str:
    """Return the token that a user has set for a run on several hosts, or "" without one.

    Raises ConfigError where its file cannot be read.
    """
    file = os.environ.get(TOKEN_FILE_VARIABLE)
    return os.environ.get("DISTRAIN_TOKEN") or (read_token(file) if file else "")


def read_token(file: str) -> str:
    """Return the token in a file that a user names; raises ConfigError where there is none."""
    try:
        with open(file) as stream:
            token = stream.read(LONGEST_TOKEN + 1).strip()
    except OSError as error:
        raise ConfigError(f"the token file {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the token file {file} cannot be read: it is not text") from None
    if not token:
        raise ConfigError(f"the token file {file} is empty")
    if len(token) > LONGEST_TOKEN:
        raise ConfigError(f"the token file {file} has more than {LONGEST_TOKEN:,} characters")
    return token


def send_to_supervisor(address: str, *events: Event, token: str = "", seconds: float = 10.0) -> str:
    """Connect as a viewer, send events, e.g. a Stop, and wait until they were received.

    Return why the supervisor refused them; empty if it did not. Raises OSError, which is a
    TimeoutError where a supervisor exists and has not read them after so many seconds.
    """
    with connect(address, seconds) as connection:
        hello = Hello(role="viewer", token=token, pid=os.getpid(), host=socket.gethostname())
        connection.sendall(b"".join(map(encode, (hello, *events))))
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(seconds)
        answer = b""
        while data := connection.recv(CHUNK):
            answer += data
    notices = [decode(line) for line in answer.splitlines()]
    return " ".join(each.text for each in notices if isinstance(each, Notice))


def ask_for_stacks(address: str, seconds: float = 30.0) -> list[Stacks]:
    """Connect as a viewer and return the stacks of all ranks that can be read in time.

    Raises OSError.
    """
    deadline = time.monotonic() + seconds
    answers: list[Stacks] = []
    with connect(address, seconds) as connection:
        hello = Hello(role="viewer", pid=os.getpid(), host=socket.gethostname())
        connection.sendall(encode(hello) + encode(StackRequest()))
        received = b""
        with suppress(TimeoutError):
            while (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                data = connection.recv(CHUNK)
                *lines, received = (received + data).split(b"\n")
                events = list(map(decode, lines))
                answers += [event for event in events if isinstance(event, Stacks)]
                # The supervisor ends its answer with the request.
                if not data or any(isinstance(event, StackRequest) for event in events):
                    break
    return answers
