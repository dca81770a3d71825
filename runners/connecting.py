"""Connections to a supervisor: how one is made, and how its end is noticed."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from runners.events import Event, Hello, encode

CHUNK = 1 << 16
TOKEN = "token"  # the file in the record
TOKEN_FILE = "DISTRAIN_TOKEN_FILE"  # names a file with the token
SILENT_S = 45  # after which a host that answers nothing is given up
_PROBES = 3


class Endpoint(NamedTuple):
    """`local` is "unix:PATH"; `remote` "tcp:HOST:PORT", empty where nobody else is listened to."""

    local: str
    remote: str = ""


def connect(address: str, seconds: float = 10.0) -> socket.socket:
    """Connect to `unix:PATH` or `tcp:HOST:PORT`; raises OSError after so many seconds."""
    kind, _, place = address.partition(":")
    deadline = time.monotonic() + seconds
    while True:
        try:
            if kind == "unix":
                return _connected(place, max(0.01, deadline - time.monotonic()))
            link = socket.create_connection(split(place), timeout=seconds)
            link.settimeout(None)
            notice_silence(link)
            return link
        except (BlockingIOError, ConnectionRefusedError):
            # A full backlog refuses, or is busy: a thousand ranks may knock at once.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _connected(path: str, seconds: float) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(seconds)
    try:
        link.connect(path)
    except OSError:
        link.close()
        raise
    link.settimeout(None)
    return link


def split(place: str) -> tuple[str, int]:
    """HOST:PORT in two, "[::1]:80" as well; 0 where no port is named."""
    host, _, port = place.rpartition(":")
    if not port.isdecimal() or (":" in host and host[-1] != "]"):  # an IPv6 address alone
        host, port = place, "0"
    return host.strip("[]"), int(port)


def joined(host: str, port: int | str) -> str:
    """HOST:PORT, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_place(text: str) -> bool:
    """Whether it is HOST:PORT."""
    host, port = split(text)
    return bool(host) and 0 < port < 1 << 16


def notice_silence(link: socket.socket) -> None:
    """Have the kernel end a TCP connection whose other host is silent for SILENT_S seconds: one
    that was cut off, or lost its power, says nothing of its end.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    every = SILENT_S // (_PROBES + 1)
    settings = {
        "TCP_KEEPIDLE": every,
        "TCP_KEEPINTVL": every,
        "TCP_KEEPCNT": _PROBES,
        # In milliseconds, for what was sent and not acknowledged, probes as well: looked at with
        # each of them, so a little sooner than the last.
        "TCP_USER_TIMEOUT": 1000 * every * (_PROBES + 1) - 500,
    }
    for name, value in settings.items():
        if hasattr(socket, name):  # Linux
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def secret() -> str:
    """The token of the run that this process belongs to, if it has one."""
    file = os.environ.get(TOKEN_FILE)
    return os.environ.get("DISTRAIN_TOKEN") or (Path(file).read_text().strip() if file else "")


def given_token() -> str:
    """The token that a person has set for a run whose hosts all know it; empty without one. Raises
    ConfigError where its file cannot be read.
    """
    file = os.environ.get(TOKEN_FILE)
    return os.environ.get("DISTRAIN_TOKEN") or (read_token(file) if file else "")


def read_token(file: str) -> str:
    """The token in a file that a person names; raises ConfigError where there is none."""
    from runners.errors import ConfigError  # ranks have no use for it

    try:
        token = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"the token file {file} cannot be read: {why}") from None
    if not token:
        raise ConfigError(f"the token file {file} is empty")
    return token


def ask(address: str, *events: Event, token: str = "", seconds: float = 10.0) -> None:
    """Say a few events to a supervisor as a viewer, e.g. a Stop; raises OSError."""
    with connect(address, seconds) as link:
        hello = Hello(role="viewer", token=token, pid=os.getpid(), host=socket.gethostname())
        link.sendall(b"".join(map(encode, (hello, *events))))
        link.shutdown(socket.SHUT_WR)
        link.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while link.recv(CHUNK):
                pass
