"""One connection of the supervisor, over a real socket."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable

import pytest

from runners.events import VERSION, Event, Hello, Notice, Stop, encode
from runners.line import LONGEST, Line

HELLO = encode(Hello(rank=3))
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Ear:
    """Keeps what a line hands on."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.lines: list[Line] = []
        self.gone = 0

    def heard(self, link: Line, event: Event) -> None:
        self.events.append(event)
        self.lines.append(link)

    def left(self, link: Line) -> None:
        self.gone += 1


def talk(say: Talk, token: str = "", ear: Ear | None = None) -> Ear:
    """What a listener has heard once `say` is done with its connection and hung up."""
    ear = ear or Ear()

    async def both() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        class Watched(Line):
            def connection_lost(self, error: Exception | None) -> None:
                super().connection_lost(error)
                ended.set()

        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/socket"
            server = await loop.create_unix_server(lambda: Watched(ear, token), path)
            reader, writer = await asyncio.open_unix_connection(path)
            await say(reader, writer)
            writer.close()
            await asyncio.wait_for(ended.wait(), 30)
            server.close()

    asyncio.run(both())
    return ear


def saying(*packets: bytes) -> Talk:
    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for packet in packets:
            writer.write(packet)
            await writer.drain()
            await asyncio.sleep(0.01)

    return say


def refused(*packets: bytes) -> Talk:
    """Says the packets, then waits until the other end hangs up; it must."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for packet in packets:
                writer.write(packet)
                await writer.drain()
            assert await asyncio.wait_for(reader.read(), 30) == b""
        except ConnectionError:
            pass

    return say


NOTICE = Notice(time=1.0, text="a — sentence\nof two lines")


def test_lines_arrive_as_events_in_order() -> None:
    ear = talk(saying(HELLO, encode(NOTICE) + encode(Stop())))
    assert ear.events == [Hello(rank=3), NOTICE, Stop()]
    assert len(set(map(id, ear.lines))) == 1
    assert ear.gone == 1


@pytest.mark.parametrize("size", [1, 7, 50])
def test_lines_may_be_split_anywhere(size: int) -> None:
    stream = HELLO + encode(NOTICE) * 2
    packets = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert talk(saying(*packets)).events == [Hello(rank=3), NOTICE, NOTICE]


def test_a_long_traceback_is_no_stranger() -> None:
    long = Notice(time=1.0, text="x" * (LONGEST // 2))
    assert talk(saying(HELLO, encode(long))).events[1:] == [long]


def test_what_was_not_ended_by_a_newline_is_not_heard() -> None:
    assert talk(saying(HELLO, encode(NOTICE)[:-1])).events == [Hello(rank=3)]


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
        ((encode(Hello(version=VERSION + 1)),), f"protocol {VERSION + 1} is not spoken here"),
        ((b"x" * (LONGEST + 100_000),), "longer than 4,096 bytes"),
    ],
)
def test_a_stranger_is_hung_up_on_and_not_heard(
    packets: tuple[bytes, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ear = talk(refused(*packets))
    assert ear.events == []
    assert ear.gone == 0, "a stranger who goes is no rank that vanished"
    assert sentence in capfd.readouterr().err


@pytest.mark.parametrize("packet", [b"{}\n", b"x" * (LONGEST + 100_000)])
def test_nonsense_after_a_good_start_ends_the_connection(packet: bytes) -> None:
    ear = talk(refused(HELLO, packet, encode(NOTICE)))
    assert ear.events == [Hello(rank=3)]
    assert ear.gone == 1


@pytest.mark.parametrize(("token", "heard"), [("secret", 1), ("", 0), ("secret ", 0)])
def test_a_run_with_a_token_hears_only_who_knows_it(token: str, heard: int) -> None:
    say = saying if heard else refused
    ear = talk(say(encode(Hello(token=token))), token="secret")
    assert len(ear.events) == heard


def test_who_keeps_silent_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runners.line.GREET_S", 0.1)
    assert talk(refused()).events == []
    assert "no hello came within 0.1 s" in capfd.readouterr().err


def test_who_has_greeted_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.line.GREET_S", 0.2)

    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await asyncio.sleep(0.5)
        writer.write(encode(NOTICE))
        await writer.drain()

    assert talk(say).events == [Hello(rank=3), NOTICE]


def test_another_user_of_the_machine_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getuid()
    monkeypatch.setattr("runners.line.os.getuid", lambda: own + 1)
    assert talk(refused(HELLO)).events == []


def test_the_listener_can_answer() -> None:
    class Polite(Ear):
        def heard(self, link: Line, event: Event) -> None:
            super().heard(link, event)
            link.send(Stop(now=True))

    answers: list[bytes] = []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        answers.append(await asyncio.wait_for(reader.readline(), 30))

    talk(ask, ear=Polite())
    assert answers == [encode(Stop(now=True))]


def test_an_answer_to_who_has_gone_is_dropped() -> None:
    ear = talk(saying(HELLO))
    ear.lines[0].send(Stop())
