"""One connection of the supervisor, over a real socket."""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable

import pytest

from distrain.runners.protocol.events import (
    VERSION,
    Event,
    Finished,
    Hello,
    Notice,
    Phase,
    Stop,
    StopSupport,
    decode,
    encode,
)
from distrain.runners.supervision.connection import MAX_LINE_BYTES, Connection

HELLO = encode(Hello(rank=3))
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Collector:
    """Collects what a connection passes on."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.connections: list[Connection] = []
        self.disconnections = 0

    def received(self, connection: Connection, event: Event) -> None:
        self.events.append(event)
        self.connections.append(connection)

    def disconnected(self, connection: Connection) -> None:
        self.disconnections += 1


def received_from(peer: Peer, token: str = "", collector: Collector | None = None) -> Collector:
    """Return what the listener received from a peer that then disconnects."""
    collector = collector or Collector()

    async def both() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        class Watched(Connection):
            def connection_lost(self, error: Exception | None) -> None:
                super().connection_lost(error)
                ended.set()

        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/socket"
            server = await loop.create_unix_server(lambda: Watched(collector, token), path)
            reader, writer = await asyncio.open_unix_connection(path)
            await peer(reader, writer)
            writer.close()
            await asyncio.wait_for(ended.wait(), 30)
            server.close()

    asyncio.run(both())
    return collector


def sending(*packets: bytes) -> Peer:
    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for packet in packets:
            writer.write(packet)
            await writer.drain()
            await asyncio.sleep(0.01)

    return peer


def refused_peer(*packets: bytes) -> Peer:
    """A peer that sends the packets and then must be disconnected."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for packet in packets:
                writer.write(packet)
                await writer.drain()
            answer = await asyncio.wait_for(reader.read(), 30)
            assert all(isinstance(decode(line), Notice) for line in answer.splitlines())
        except ConnectionError:
            pass

    return peer


NOTICE = Notice(time=1.0, text="a — sentence\nof two lines")
SUPPORT = StopSupport(rank=3)


def test_lines_arrive_as_events_in_order() -> None:
    collector = received_from(sending(HELLO, encode(NOTICE) + encode(SUPPORT)))
    assert collector.events == [Hello(rank=3), NOTICE, SUPPORT]
    assert len(set(map(id, collector.connections))) == 1
    assert collector.disconnections == 1


@pytest.mark.parametrize("size", [1, 7, 50])
def test_lines_may_be_split_anywhere(size: int) -> None:
    stream = HELLO + encode(NOTICE) * 2
    packets = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert received_from(sending(*packets)).events == [Hello(rank=3), NOTICE, NOTICE]


def test_a_long_traceback_is_accepted() -> None:
    long = Notice(time=1.0, text="x" * (MAX_LINE_BYTES // 2))
    assert received_from(sending(HELLO, encode(long))).events[1:] == [long]


def test_a_line_without_a_newline_is_ignored() -> None:
    assert received_from(sending(HELLO, encode(NOTICE)[:-1])).events == [Hello(rank=3)]


@pytest.mark.parametrize(
    ("packets", "sentence"),
    [
        ((b"GET / HTTP/1.1\r\n",), "not an event"),
        ((b'{"type": "hello", "rank": "three"}\n',), "not an event"),
        ((b'{"type": "gossip"}\n',), "not an event"),
        ((b"\xff\xfe\n",), "not an event"),
        ((b"\n",), "not an event"),
        ((b"[" * 4000 + b"\n",), "not an event"),
        ((b'{"type": "\\u001b[31mforged"}\n',), "not an event\n"),
        ((b'"' + b"x" * 5000 + b'"\n',), "longer than 4,096 bytes"),
        ((encode(NOTICE),), "the first line must be a hello"),
        ((encode(Stop(now=True)),), "the first line must be a hello"),
        ((encode(Hello(token="guessed")),), "with this run's token"),
        ((b"x" * (MAX_LINE_BYTES + 100_000),), "longer than 4,096 bytes"),
    ],
)
def test_a_peer_with_an_invalid_hello_is_disconnected(
    packets: tuple[bytes, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    collector = received_from(refused_peer(*packets))
    assert collector.events == []
    assert collector.disconnections == 0, "a peer that has not greeted is no lost rank"
    assert sentence in capfd.readouterr().err


def test_a_peer_with_another_version_is_sent_the_reason_and_disconnected(
    capfd: pytest.CaptureFixture[str],
) -> None:
    answers: list[bytes] = []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(Hello(role="node", version=VERSION + 1)))
        answers.append(await asyncio.wait_for(reader.read(), 30))

    collector = received_from(ask)
    assert (collector.events, collector.disconnections) == ([], 0)
    answer = decode(answers[0])
    reason = f"protocol version {VERSION + 1} is not supported"
    assert isinstance(answer, Notice)
    assert reason in answer.text
    assert reason in capfd.readouterr().err


def test_a_peer_that_does_not_belong_to_the_run_is_sent_the_reason_and_disconnected(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Refusing(Collector):
        def received(self, connection: Connection, event: Event) -> None:
            connection.refuse("other hosts cannot join this run: it has one host")

    answers: list[bytes] = []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(Hello(role="node")))
        answers.append(await asyncio.wait_for(reader.read(), 30))

    received_from(ask, collector=Refusing())
    answer = decode(answers[0])
    assert isinstance(answer, Notice)
    assert answer.text == "other hosts cannot join this run: it has one host"
    assert answer.text in capfd.readouterr().err


INVALID = [b"{}\n", b'{"type": "\xff"}\n', b'"' + b"x" * (2 * MAX_LINE_BYTES) + b'"\n']


@pytest.mark.parametrize("packet", INVALID)
def test_an_invalid_line_after_the_hello_ends_the_connection(packet: bytes) -> None:
    hello = Hello(role="viewer")
    collector = received_from(refused_peer(encode(hello), packet, encode(NOTICE)))
    assert collector.events == [hello]
    assert collector.disconnections == 1


@pytest.mark.parametrize("packet", INVALID)
def test_an_invalid_line_of_a_rank_is_skipped_with_one_notice(packet: bytes) -> None:
    collector = received_from(sending(HELLO, packet, encode(NOTICE), packet, encode(SUPPORT)))
    hello, skipped, *others = collector.events
    assert (hello, others) == (Hello(rank=3), [NOTICE, SUPPORT])
    assert isinstance(skipped, Notice)
    assert "was skipped: " in skipped.text


def test_a_viewer_that_sends_what_ranks_send_is_disconnected(
    capfd: pytest.CaptureFixture[str],
) -> None:
    viewer, finished = Hello(role="viewer"), Finished(time=1.0, rank=0, step=1)
    collector = received_from(refused_peer(encode(viewer), encode(finished)))
    assert collector.events == [viewer]
    assert "a viewer may not send finished" in capfd.readouterr().err


@pytest.mark.parametrize("event", [Hello(rank=0), Stop(), Finished(time=1.0, rank=0, step=1)])
def test_a_rank_stays_connected_if_it_sends_what_it_may_not(event: Event) -> None:
    collector = received_from(sending(HELLO, encode(event), encode(NOTICE)))
    hello, skipped, *others = collector.events
    assert (hello, others) == (Hello(rank=3), [NOTICE])
    assert isinstance(skipped, Notice)
    assert " may not " in skipped.text


def test_an_event_that_cannot_be_handled_loses_no_other() -> None:
    class Faulty(Collector):
        def received(self, connection: Connection, event: Event) -> None:
            if isinstance(event, StopSupport):
                raise ValueError("no stop")
            super().received(connection, event)

    phases = [Phase(time=1.0, rank=3, phase="training", step=step) for step in range(3)]
    stop = encode(SUPPORT)
    packet = encode(phases[0]) + stop + encode(phases[1]) + stop + encode(phases[2])
    collector = received_from(sending(HELLO + packet), collector=Faulty())
    (notice,) = [event for event in collector.events if isinstance(event, Notice)]
    assert "was skipped: ValueError: no stop" in notice.text
    assert [event for event in collector.events if isinstance(event, Phase)] == phases


@pytest.mark.parametrize(("token", "accepted"), [("secret", 1), ("", 0), ("secret ", 0)])
def test_only_peers_that_know_the_token_are_accepted(token: str, accepted: int) -> None:
    peer = sending if accepted else refused_peer
    collector = received_from(peer(encode(Hello(token=token))), token="secret")
    assert len(collector.events) == accepted


def test_a_peer_that_sends_no_hello_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("distrain.runners.supervision.connection.HELLO_TIMEOUT_S", 0.1)
    assert received_from(refused_peer()).events == []
    assert "no hello within 0.1 s" in capfd.readouterr().err


def test_a_peer_may_be_silent_after_its_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrain.runners.supervision.connection.HELLO_TIMEOUT_S", 0.2)

    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await asyncio.sleep(0.5)
        writer.write(encode(NOTICE))
        await writer.drain()

    assert received_from(peer).events == [Hello(rank=3), NOTICE]


def test_other_users_of_the_host_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getuid()
    monkeypatch.setattr("distrain.runners.protocol.client.os.getuid", lambda: own + 1)
    assert received_from(refused_peer(HELLO)).events == []


def test_the_listener_can_answer() -> None:
    class Polite(Collector):
        def received(self, connection: Connection, event: Event) -> None:
            super().received(connection, event)
            connection.send(Stop(now=True))

    answers: list[bytes] = []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        answers.append(await asyncio.wait_for(reader.readline(), 30))

    received_from(ask, collector=Polite())
    assert answers == [encode(Stop(now=True))]


def test_an_answer_to_a_closed_connection_is_dropped() -> None:
    collector = received_from(sending(HELLO))
    collector.connections[0].send(Stop())


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_LINES_PER_S", 1), ("MAX_BYTES_PER_S", len(HELLO))]
)
def test_a_flood_waits_and_loses_nothing(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"distrain.runners.supervision.connection.{limit}", value)
    seen: list[Event | str] = []

    class Watched(Collector):
        def received(self, connection: Connection, event: Event) -> None:
            seen.append(event)
            if len(seen) == 1:
                self.watch(connection._transport, "pause_reading")
                self.watch(connection._transport, "resume_reading")

        def watch(self, transport: object, method: str) -> None:
            act = getattr(transport, method)
            monkeypatch.setattr(transport, method, lambda: (seen.append(method), act()))

    received_from(sending(HELLO, encode(NOTICE) + encode(SUPPORT), encode(NOTICE)), "", Watched())
    assert [each for each in seen if isinstance(each, Event)] == [
        Hello(rank=3),
        NOTICE,
        SUPPORT,
        NOTICE,
    ]
    waited = seen[seen.index("pause_reading") :]
    assert waited.index("resume_reading") < waited.index(NOTICE, 2), "the last message waits"


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return hmac.compare_digest(first, second)

    monkeypatch.setattr("distrain.runners.supervision.connection.compare_digest", compare)
    received_from(sending(encode(Hello(token="secret"))), token="secret")
    assert compared == [(b"secret", b"secret")]


def test_what_a_peer_sent_before_it_closed_is_received_though_writing_to_it_fails() -> None:
    collector = Collector()

    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        while not collector.connections:
            writer.write(encode(Phase(time=1.0, rank=3, phase="training")))
            await asyncio.sleep(0.01)
        # Nothing of this gives the supervisor's end a turn to read.
        own = writer.get_extra_info("socket")
        writer.write(encode(Finished(time=2.0, rank=3, step=7, stopped=False)))
        own.shutdown(socket.SHUT_RDWR)
        collector.connections[0].send(Stop())

    received_from(peer, collector=collector)
    assert isinstance(collector.events[-1], Finished)
    assert collector.disconnections == 1


def test_a_peer_that_never_reads_its_answers_is_disconnected() -> None:
    answer = Notice(time=0.0, text="x" * (1 << 16))

    class Answering(Collector):
        def received(self, connection: Connection, event: Event) -> None:
            super().received(connection, event)
            for _ in range(1000):
                connection.send(answer)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        while await reader.read(1 << 20):  # what was sent before the end, at last
            pass

    collector = received_from(peer, collector=Answering())
    assert collector.disconnections == 1
