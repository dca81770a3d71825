"""A process that becomes a rank by itself: which one it is, how it joins, how it ends."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.instrumentation import joined_rank, problems
from distrain.runners.instrumentation.joined_rank import JoinedRank
from distrain.runners.instrumentation.joining_reporter import JoiningReporter
from distrain.runners.instrumentation.position import Position, find_position
from distrain.runners.protocol.events import Event, Failure, Finished, Hello, Logged, Notice
from distrain.runners.protocol.reporter import NullReporter

NO_ARGUMENTS = (None, None)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (NO_ARGUMENTS, {}, (0, 1)),
        (NO_ARGUMENTS, {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ((1, 4), {}, (1, 4)),
        ((1, None), {"WORLD_SIZE": "3"}, (1, 3)),
        ((None, 2), {"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ((None, 4), {}, "world_size=4.* needs a rank: without one, this is rank 0 of 1"),
        ((4, 4), {}, "rank 4 of 4 does not exist"),
        ((None, "y"), {}, "world_size must be a whole number, not 'y'"),
        ((float("nan"), 2), {}, "rank must be a whole number, not 'nan'"),
        ((0, 10**5000), {}, r"world_size must be a whole number up to 2\*\*53"),
        ((0, 10**7), {}, "10,000,000 ranks cannot be recorded"),
        (NO_ARGUMENTS, {"RANK": "first"}, "RANK must be a whole number, not 'first'"),
        ((0, 2), {"LOCAL_WORLD_SIZE": "0"}, (0, 2)),
    ],
)
def test_arguments_and_environment_say_which_rank_it_is(
    arguments: tuple[Any, Any],
    environment: dict[str, str],
    expected: tuple[int, int] | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", environment)
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            find_position(*arguments)
    else:
        position = find_position(*arguments)
        assert position is not None
        assert position[:2] == expected


@pytest.mark.parametrize("error", [OSError("no"), DistrainError("no")])
def test_a_rank_that_cannot_join_says_so_and_keeps_nothing(error: Exception) -> None:
    def find() -> str:
        raise error

    lost: list[str] = []
    reporter = JoiningReporter(find, Hello(), lost.append)
    assert reporter.has_tried.wait(60)
    reporter.send(Notice(time=0.0, text="to nobody"))
    reporter.close()
    assert lost == ["no"]
    assert not reporter._queue


ENDED = "nothing more is recorded: the observer has ended"


@pytest.mark.parametrize(
    ("has_ended", "token", "expected"),
    [
        (True, "", []),
        (False, "", [ENDED]),
        (False, "secret", [f"{ENDED}, or its DISTRAIN_TOKEN is another one"]),
    ],
)
def test_a_connection_that_closes_after_the_end_is_not_lost(
    has_ended: bool, token: str, expected: list[str], tmp_path: Path
) -> None:
    lost: list[str] = []
    hello = Hello(token=token)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        reporter = JoiningReporter(lambda: f"unix:{tmp_path}/socket", hello, lost.append)
        connection, _ = server.accept()
        assert reporter.has_tried.wait(60)
        if has_ended:
            reporter.send(Finished(time=0.0, rank=0, step=1))
        connection.close()
        reporter.thread.join(60)
    reporter.close()
    assert lost == expected


@pytest.mark.parametrize("error", [None, RuntimeError("CUDA error: device-side assert triggered")])
def test_the_end_is_reported_even_if_the_device_is_unusable(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Event] = []

    class Sends(NullReporter):
        def __init__(self, *_: object) -> None: ...

        def send(self, event: Event) -> None:
            sent.append(event)

    monkeypatch.setattr(problems, "_was_printed", True)
    monkeypatch.setattr(joined_rank, "JoiningReporter", Sends)
    monkeypatch.setenv(joined_rank.PROCESS_VARIABLE, "")  # which it sets
    joined = JoinedRank(Position(0, 1, 0, 1), lambda: None, print, "")
    session = joined.session
    session.log({"loss": 1.0})
    monkeypatch.setattr(session, "_log_due", float("inf"))
    session.log({"last": 2.0})
    fails: Callable[[], None] = lambda: 1 / 0  # noqa: E731
    monkeypatch.setattr(session.loop, "replay", fails)
    monkeypatch.setattr(session.loop.timer, "stop", fails)
    joined.end(error)
    assert [name for event in sent if isinstance(event, Logged) for name in event.values] == [
        "loss",
        "last",
    ]
    assert isinstance(sent[-1], Failure if error else Finished)
