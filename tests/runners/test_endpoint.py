"""Where a supervisor is spoken to: this host by a Unix socket, others by TCP with a token."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.connecting import SILENT_S, TOKEN, Endpoint, ask, connect, secret, split
from runners.endpoint import listening
from runners.errors import DistrainError
from runners.events import Event, Stop
from runners.line import Line

PATIENCE_S = 30


class Ear:
    """Keeps what it hears, with the line that it came over."""

    def __init__(self) -> None:
        self.heard_: list[tuple[Line, Event]] = []
        self.gone = 0

    def heard(self, link: Line, event: Event) -> None:
        self.heard_.append((link, event))

    def left(self, link: Line) -> None:
        self.gone += 1


def during(folder: Path, work: Callable[[Endpoint], None], place: str = "127.0.0.1") -> Ear:
    """What is heard while a thread does the work."""
    ear = Ear()

    async def both() -> None:
        async with listening(ear, folder, place) as endpoint:
            await asyncio.wait_for(asyncio.to_thread(work, endpoint), PATIENCE_S)

    asyncio.run(both())
    return ear


def test_both_ways_are_heard(tmp_path: Path) -> None:
    def work(endpoint: Endpoint) -> None:
        ask(endpoint.local, Stop())
        ask(endpoint.remote, Stop(now=True), token=(tmp_path / TOKEN).read_text())

    said = [event for _, event in during(tmp_path, work).heard_ if isinstance(event, Stop)]
    assert said == [Stop(), Stop(now=True)]


@pytest.mark.parametrize("token", ["", "guessed", "ü"])
def test_who_does_not_know_the_token_is_not_heard(token: str, tmp_path: Path) -> None:
    def work(endpoint: Endpoint) -> None:
        with contextlib.suppress(ConnectionError):  # it may hang up at once
            ask(endpoint.remote, Stop(), token=token)

    assert during(tmp_path, work).heard_ == []


def test_strangers_in_any_number_leave_room_for_who_belongs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.line.descriptors", lambda: 10)

    def work(endpoint: Endpoint) -> None:
        strangers = [connect(endpoint.remote) for _ in range(8)]
        ask(endpoint.remote, Stop(), token=(tmp_path / TOKEN).read_text())
        for stranger in strangers[:3]:
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(1) == b""
        for stranger in strangers[4:]:
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(1)
        for stranger in strangers:
            stranger.close()

    assert Stop() in [event for _, event in during(tmp_path, work).heard_]


def test_the_token_is_for_its_owner_alone_and_goes_with_the_run(tmp_path: Path) -> None:
    seen: list[tuple[int, str]] = []

    def work(_: Endpoint) -> None:
        file = tmp_path / TOKEN
        seen.append((stat.S_IMODE(file.stat().st_mode), file.read_text()))

    during(tmp_path, work)
    during(tmp_path, work)
    (mode, first), (_, second) = seen
    assert mode == 0o600
    assert len(first) >= 40
    assert first != second
    assert not (tmp_path / TOKEN).exists()


def test_without_an_address_only_this_host_is_listened_to(tmp_path: Path) -> None:
    seen: list[Endpoint] = []
    during(tmp_path, seen.append, place="")
    assert seen[0].remote == ""
    assert not (tmp_path / TOKEN).exists()


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
def test_what_cannot_be_listened_on_is_named(place: str, tmp_path: Path) -> None:
    with pytest.raises(DistrainError, match=f"^{re.escape(place)} cannot be listened on: "):
        during(tmp_path, lambda endpoint: None, place)
    assert not (tmp_path / TOKEN).exists()


def test_a_port_may_be_chosen(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    seen: list[Endpoint] = []
    during(tmp_path, seen.append, place=f"127.0.0.1:{port}")
    assert seen[0].remote == f"tcp:127.0.0.1:{port}"


def test_ranks_are_told_the_very_address(tmp_path: Path) -> None:
    """A name may stand for several, and what listens at another of them may be a stranger's."""
    seen: list[Endpoint] = []
    during(tmp_path, seen.append, place="localhost")
    host = seen[0].remote.removeprefix("tcp:").rpartition(":")[0]
    assert host in ("127.0.0.1", "[::1]")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
def test_both_ends_notice_that_a_host_has_gone(tmp_path: Path) -> None:
    found = []

    def look(link: socket.socket) -> None:
        found.append(
            (
                link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            )
        )

    class Looking(Ear):
        def heard(self, link: Line, event: Event) -> None:
            assert link._transport is not None
            look(link._transport.get_extra_info("socket"))

    async def both() -> None:
        async with listening(Looking(), tmp_path, "127.0.0.1") as endpoint:
            token = (tmp_path / TOKEN).read_text()
            await asyncio.to_thread(ask, endpoint.remote, token=token)

    asyncio.run(both())
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        connect(f"tcp:127.0.0.1:{server.getsockname()[1]}") as link,
    ):
        look(link)
    assert [kept for kept, _ in found] == [1, 1]
    assert all(patience < 1000 * SILENT_S for _, patience in found)


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
def test_a_place_is_a_host_and_a_port(place: str, host: str, port: int) -> None:
    assert split(place) == (host, port)


def test_a_process_finds_the_token_in_the_file_that_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DISTRAIN_TOKEN", raising=False)
    assert secret() == ""
    (tmp_path / TOKEN).write_text("from the file\n")
    monkeypatch.setenv("DISTRAIN_TOKEN_FILE", str(tmp_path / TOKEN))
    assert secret() == "from the file"
    monkeypatch.setenv("DISTRAIN_TOKEN", "told")
    assert secret() == "told"
