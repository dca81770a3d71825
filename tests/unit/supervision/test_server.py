"""The sockets of a supervisor: a Unix socket for this host, TCP with a token for others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import (
    SILENT_HOST_S,
    TOKEN_FILE_NAME,
    ServerAddresses,
    connect,
    has_no_response,
    is_silent,
    read_own_token,
    send_to_supervisor,
    split_address,
)
from distrain.runners.protocol.events import Event, Hello, Stop, encode
from distrain.runners.supervision.connection import Connection
from distrain.runners.supervision.server import serve

PATIENCE_S = 30


class Collector:
    """Collects events, with the connections that they came over."""

    def __init__(self) -> None:
        self.received_events: list[tuple[Connection, Event]] = []
        self.disconnections = 0

    def received(self, connection: Connection, event: Event) -> None:
        self.received_events.append((connection, event))

    def disconnected(self, connection: Connection) -> None:
        self.disconnections += 1


def during(
    folder: Path, work: Callable[[ServerAddresses], None], place: str = "127.0.0.1"
) -> Collector:
    """Return what is received while a thread does the work."""
    collector = Collector()

    async def both() -> None:
        async with serve(collector, folder, place) as addresses:
            await asyncio.wait_for(asyncio.to_thread(work, addresses), PATIENCE_S)

    asyncio.run(both())
    return collector


def test_both_sockets_are_served(tmp_path: Path) -> None:
    def work(addresses: ServerAddresses) -> None:
        send_to_supervisor(addresses.local, Stop())
        send_to_supervisor(
            addresses.remote, Stop(now=True), token=(tmp_path / TOKEN_FILE_NAME).read_text()
        )

    said = [event for _, event in during(tmp_path, work).received_events if isinstance(event, Stop)]
    assert said == [Stop(), Stop(now=True)]


@pytest.mark.parametrize("token", ["", "guessed", "ü"])
def test_peers_without_the_token_are_refused(token: str, tmp_path: Path) -> None:
    def work(addresses: ServerAddresses) -> None:
        with contextlib.suppress(ConnectionError):  # it may close the connection at once
            send_to_supervisor(addresses.remote, Stop(), token=token)

    assert during(tmp_path, work).received_events == []


def test_peers_without_a_hello_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.runners.supervision.connection.descriptor_limit", lambda: 10)

    def work(addresses: ServerAddresses) -> None:
        strangers = [connect(addresses.remote) for _ in range(8)]
        send_to_supervisor(addresses.remote, Stop(), token=(tmp_path / TOKEN_FILE_NAME).read_text())
        for stranger in strangers[:3]:
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(1) == b""
        for stranger in strangers[4:]:
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(1)
        for stranger in strangers:
            stranger.close()

    assert Stop() in [event for _, event in during(tmp_path, work).received_events]


def test_the_token_is_private_and_removed_with_the_run(tmp_path: Path) -> None:
    seen: list[tuple[int, str]] = []

    def work(_: ServerAddresses) -> None:
        file = tmp_path / TOKEN_FILE_NAME
        seen.append((stat.S_IMODE(file.stat().st_mode), file.read_text()))

    during(tmp_path, work)
    during(tmp_path, work)
    (mode, first), (_, second) = seen
    assert mode == 0o600
    assert len(first) >= 40
    assert first != second
    assert not (tmp_path / TOKEN_FILE_NAME).exists()


def test_without_an_address_only_the_unix_socket_is_served(tmp_path: Path) -> None:
    seen: list[ServerAddresses] = []
    during(tmp_path, seen.append, place="")
    assert seen[0].remote == ""
    assert not (tmp_path / TOKEN_FILE_NAME).exists()


@pytest.mark.parametrize(
    "place",
    [
        "192.0.2.1",
        "no-such-host.invalid:80",
        "127.0.0.1:99999",
        "a..b",
        "8080",
        ":8080",
        "0.0.0.0",
        "[::]:80",
    ],
)
def test_an_address_that_cannot_be_listened_on_is_named(place: str, tmp_path: Path) -> None:
    with pytest.raises(DistrainError, match=f"^cannot listen on {re.escape(place)}: "):
        during(tmp_path, lambda addresses: None, place)
    assert not (tmp_path / TOKEN_FILE_NAME).exists()


def test_a_port_may_be_chosen(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    seen: list[ServerAddresses] = []
    during(tmp_path, seen.append, place=f"127.0.0.1:{port}")
    assert seen[0].remote == f"tcp:127.0.0.1:{port}"


def test_the_address_is_numeric(tmp_path: Path) -> None:
    """A name may have several addresses, and another program may listen at one of them."""
    seen: list[ServerAddresses] = []
    during(tmp_path, seen.append, place="localhost")
    host = seen[0].remote.removeprefix("tcp:").rpartition(":")[0]
    assert host in ("127.0.0.1", "[::1]")


def test_both_ends_notice_a_lost_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def look(link: socket.socket) -> None:
        found.append(link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    class Inspected(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            look(transport.get_extra_info("socket"))

    monkeypatch.setattr("distrain.runners.supervision.server.Connection", Inspected)

    async def both() -> None:
        async with serve(Collector(), tmp_path, "127.0.0.1") as addresses:
            token = (tmp_path / TOKEN_FILE_NAME).read_text()
            await asyncio.to_thread(send_to_supervisor, addresses.remote, token=token)

    asyncio.run(both())
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        connect(f"tcp:127.0.0.1:{server.getsockname()[1]}") as link,
    ):
        look(link)
    assert all(found)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("seconds", "sent", "resent", "probes", "expected"),  # `sent`: seconds since data was sent
    [
        (54, 3, 8, 0, True),  # what was sent again after 51 s is not acknowledged
        (52, 1, 8, 0, False),  # the answer may be on its way
        (50, 25, 7, 0, False),  # nothing was sent since 25 s, and the network may work again
        (2 * SILENT_HOST_S + 1, 50, 7, 0, True),
        (2 * SILENT_HOST_S + 1, 91, 0, 3, True),  # probes are not answered
        (2 * SILENT_HOST_S + 1, 91, 0, 1, False),  # the answer may be on its way
        (2 * SILENT_HOST_S + 1, 91, 0, 0, False),  # nobody reads there: the next may take minutes
        (SILENT_HOST_S - 1, 3, 9, 9, False),
    ],
)
def test_a_host_is_silent_if_it_owes_an_answer(
    seconds: int, sent: int, resent: int, probes: int, expected: bool
) -> None:
    tcp_info = struct.pack("4B40xI8xI", 1, 0, resent, probes, 1000 * sent, 1000 * seconds)
    assert has_no_response(tcp_info) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells")
def test_a_host_that_responds_is_not_silent() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        connect(f"tcp:127.0.0.1:{server.getsockname()[1]}") as link,
    ):
        assert not is_silent(link)
        # The kernel would close a connection to a process that reads nothing.
        assert not link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        # The last probe is sent shortly before it closes others, whose network may work again.
        assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) <= SILENT_HOST_S // 8


def test_a_host_that_acknowledges_nothing_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True])
    place = "distrain.runners.supervision.connection"
    monkeypatch.setattr(f"{place}.is_silent", lambda _: next(answers))
    monkeypatch.setattr(f"{place}.PEER_CHECK_S", 0.05)

    def work(addresses: ServerAddresses) -> None:
        token = (tmp_path / TOKEN_FILE_NAME).read_text()
        with connect(addresses.remote) as link:
            link.sendall(encode(Hello(role="viewer", token=token)) + encode(Stop()))
            with contextlib.suppress(ConnectionError):
                assert link.recv(1) == b""

    collector = during(tmp_path, work)
    assert collector.disconnections == 1
    (connection, _) = collector.received_events[0]
    assert connection.timed_out


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [
        ("login1", "login1", 0),
        ("login1:80", "login1", 80),
        ("login1:http", "login1:http", 0),
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("::1", "::1", 0),
        ("[::1]", "::1", 0),
        ("[::1]:80", "::1", 80),
    ],
)
def test_an_address_is_a_host_and_a_port(place: str, host: str, port: int) -> None:
    assert split_address(place) == (host, port)


def test_the_token_is_read_from_the_file_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DISTRAIN_TOKEN", raising=False)
    assert read_own_token() == ""
    (tmp_path / TOKEN_FILE_NAME).write_text("from the file\n")
    monkeypatch.setenv("DISTRAIN_TOKEN_FILE", str(tmp_path / TOKEN_FILE_NAME))
    assert read_own_token() == "from the file"
    monkeypatch.setenv("DISTRAIN_TOKEN", "told")
    assert read_own_token() == "told"


def test_the_unix_socket_and_its_folder_are_private(tmp_path: Path) -> None:
    def work(addresses: ServerAddresses) -> None:
        socket_file = Path(addresses.local.removeprefix("unix:"))
        assert stat.S_IMODE(socket_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(socket_file.parent.stat().st_mode) == 0o700

    during(tmp_path, work)


def test_a_socket_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getuid()

    def work(addresses: ServerAddresses) -> None:
        monkeypatch.setattr("distrain.runners.protocol.client.os.getuid", lambda: own + 1)
        with pytest.raises(PermissionError):
            connect(addresses.local)
        monkeypatch.undo()

    during(tmp_path, work)


def test_peers_without_the_token_cannot_fill_the_disk_through_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(addresses: ServerAddresses) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError), connect(addresses.remote) as peer:
                peer.sendall(b"a guess\n")
                peer.recv(1)

    during(tmp_path, work)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "connection refused: not an event"
    assert lines[100:] == [
        f"connection refused (number {n}): not an event" for n in (128, 256, 512)
    ]
