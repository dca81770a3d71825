"""A reporter and the supervisor's side, over real sockets."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distrain.runners.protocol import reporter as module
from distrain.runners.protocol.client import send_to_supervisor
from distrain.runners.protocol.events import (
    Evaluation,
    Event,
    Hello,
    Metric,
    Notice,
    Stop,
    StopAt,
    Stopping,
    Window,
    decode,
    encode,
)
from distrain.runners.protocol.reporter import NullReporter, Reporter

PATIENCE_S = 60.0


class Server:
    """The other end: one listening socket, one thread for each connection."""

    def __init__(self, listening: socket.socket, address: str) -> None:
        self.address = address
        self.events: list[Event] = []
        self.hung_up = threading.Event()
        self.reading = threading.Event()
        self.reading.set()
        self._listening, self._links = listening, list[socket.socket]()
        self._grown = threading.Condition()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listening.accept()
                with self._grown:
                    self._links.append(link)
                    self._grown.notify_all()
                threading.Thread(target=self._hear, args=(link,), daemon=True).start()

    def _hear(self, link: socket.socket) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while self.reading.wait() and (data := link.recv(1 << 16)):
                *lines, rest = (rest + data).split(b"\n")
                with self._grown:
                    self.events += map(decode, lines)
                    self._grown.notify_all()
        self.hung_up.set()

    def wait_for(self, holds: Callable[[list[Event]], Any]) -> Any:
        with self._grown:
            found = self._grown.wait_for(lambda: holds(self.events), PATIENCE_S)
        assert found, self.events
        return found

    def say(self, event: Event) -> None:
        with self._grown:  # a connection may not have been accepted yet
            assert self._grown.wait_for(lambda: self._links, PATIENCE_S)
        for link in self._links:
            with contextlib.suppress(OSError):
                link.sendall(encode(event))

    def say_line(self, line: bytes) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: self._links, PATIENCE_S)
        for link in self._links:
            link.sendall(line + b"\n")

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(
                socket.SHUT_RDWR
            )  # wakes the accepting thread, which a close does not
        self._accepting.join(PATIENCE_S)
        self._listening.close()
        for link in self._links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()


@pytest.fixture
def server() -> Iterator[Server]:
    # pytest's own folders are longer than a Unix socket's path may be.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/socket")
        listening.listen()
        served = Server(listening, f"unix:{folder}/socket")
        yield served
        served.reading.set()
        served.hang_up()


def window(step: int, **more: Any) -> Window:
    fields: dict[str, Any] = {
        "time": float(step),
        "rank": 0,
        "epoch": 0,
        "step": step,
        "steps": 1,
        "samples": 3,
        "loss_sum": step / 4,
        "loss_min": step / 4,
        "loss_max": step / 4,
        "lr": 0.1,
        "seconds": 0.5,
        "forward": 0.25,
    }
    return Window(**{**fields, **more})


def notice(text: str) -> Notice:
    return Notice(time=0.0, text=text)


# --- sending -----------------------------------------------------------------------------------


def test_events_arrive_in_order_after_the_hello(server: Server) -> None:
    events = [notice(str(number)) for number in range(1000)]
    with Reporter(server.address, Hello(rank=1)) as reporter:
        for event in events:
            reporter.send(event)
    assert server.hung_up.wait(PATIENCE_S)
    assert server.events == [Hello(rank=1), *events]


def test_a_reporter_sends_its_hello_first(server: Server) -> None:
    with Reporter(server.address, Hello(rank=1)):
        server.wait_for(lambda events: events == [Hello(rank=1)])


def test_many_threads_may_send(server: Server) -> None:
    def speak(who: int) -> None:
        for number in range(200):
            reporter.send(notice(f"{who} {number}"))

    with Reporter(server.address, Hello()) as reporter:
        threads = [threading.Thread(target=speak, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert server.hung_up.wait(PATIENCE_S)
    said = [event.text.split() for event in server.events if isinstance(event, Notice)]
    for who in range(4):
        own = [int(number) for speaker, number in said if speaker == str(who)]
        assert own == list(range(200))


def test_windows_are_not_merged_while_the_supervisor_keeps_up(server: Server) -> None:
    with Reporter(server.address, Hello()) as reporter:
        for step in range(1, 31):
            reporter.send(window(step))
            server.wait_for(lambda events, step=step: len(events) == step + 1)
    assert server.events[1:] == [window(step) for step in range(1, 31)]


def test_under_back_pressure_windows_grow_and_totals_stay_exact(server: Server) -> None:
    # given a supervisor that does not read
    server.reading.clear()
    steps, every = 30_000, 500
    rare: list[Event] = []
    with Reporter(server.address, Hello()) as reporter:
        # when a rank sends far more than the socket holds
        for step in range(1, steps + 1):
            reporter.send(window(step, epoch=step // 10_000))
            if step % every == 0:
                metrics = {"loss": Metric.of(float(step), 10)}
                rare.append(
                    Evaluation(
                        time=0.0, epoch=0, step=step, samples=10, seconds=1.0, metrics=metrics
                    )
                )
                reporter.send(rare[-1])
        server.reading.set()
    assert server.hung_up.wait(PATIENCE_S)
    # then windows have merged, and nothing is missing from their sums
    windows = [event for event in server.events if isinstance(event, Window)]
    assert len(windows) < steps / 2
    assert [event for event in server.events if isinstance(event, Evaluation)] == rare
    for epoch in range(4):
        said = [window(step) for step in range(1, steps + 1) if step // 10_000 == epoch]
        own = [event for event in windows if event.epoch == epoch]
        for name in ("steps", "samples", "loss_sum", "seconds", "forward"):
            assert sum(getattr(w, name) for w in own) == sum(getattr(w, name) for w in said)
        assert min(w.loss_min or 0.0 for w in own) == said[0].loss_min
        assert max(w.loss_max or 0.0 for w in own) == said[-1].loss_max
    # and each event comes between the steps between which it was sent
    last = 0
    for event in server.events[1:]:
        assert isinstance(event, Window | Evaluation)
        first = event.step - event.steps + 1 if isinstance(event, Window) else event.step
        assert first == (last + 1 if isinstance(event, Window) else last)
        last = event.step


def test_a_warm_up_window_never_merges_with_a_later_one(server: Server) -> None:
    server.reading.clear()
    filler = [notice("x" * 100_000) for _ in range(module.QUEUE_SIZE + 10)]
    with Reporter(server.address, Hello()) as reporter:
        for event in filler:
            reporter.send(event)
        for step in range(1, 21):
            reporter.send(window(step, warmup=step <= 10))
        server.reading.set()
    assert server.hung_up.wait(PATIENCE_S)
    windows = [event for event in server.events if isinstance(event, Window)]
    assert sum(w.steps for w in windows if w.warmup) == 10
    assert sum(w.steps for w in windows if not w.warmup) == 10


def test_closing_does_not_wait_forever_for_a_supervisor_that_never_reads(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.2)
    server.reading.clear()
    reporter = Reporter(server.address, Hello())
    for _ in range(100):
        reporter.send(notice("x" * 100_000))
    reporter.close()


def test_a_message_that_cannot_be_encoded_does_not_block_others(server: Server) -> None:
    bad: Any = object()
    with Reporter(server.address, Hello(rank=1)) as reporter:
        for text in (bad, "first", "\udcff", "last"):
            reporter.send(notice(text))
    assert server.hung_up.wait(PATIENCE_S)
    texts = [event.text for event in server.events if isinstance(event, Notice)]
    assert texts[0].startswith("rank 1 could not send a message: ")
    assert texts[1:] == ["first", "last"]


def test_closing_twice_is_allowed(server: Server) -> None:
    reporter = Reporter(server.address, Hello())
    reporter.close()
    reporter.close()
    reporter.send(notice("too late"))
    assert server.hung_up.wait(PATIENCE_S)
    assert server.events == [Hello()]


# --- lost connections ---------------------------------------------------------------------------


def test_a_supervisor_that_dies_is_noticed(server: Server) -> None:
    lost = threading.Event()
    reporter = Reporter(server.address, Hello(), on_lost=lost.set)
    server.wait_for(len)
    server.hang_up()
    assert lost.wait(PATIENCE_S)
    reporter.close()


def test_closing_the_reporter_is_not_a_lost_connection(server: Server) -> None:
    lost = threading.Event()
    reporter = Reporter(server.address, Hello(), on_lost=lost.set)
    reporter.close()
    assert not reporter.thread.is_alive()
    assert not lost.is_set()


def test_a_script_that_waits_for_a_stop_ends_when_the_supervisor_dies(server: Server) -> None:
    # given a script that was asked to stop and waits for the step
    reporter = Reporter(server.address, Hello())
    server.wait_for(len)
    server.say(Stop())
    server.wait_for(lambda events: any(isinstance(event, Stopping) for event in events))
    # when the supervisor dies
    server.hang_up()
    # then the script does not wait forever
    assert not reporter.should_continue(1)
    reporter.close()


FORKS = """
import os, sys, time
from distrain.runners.protocol.events import Hello
from distrain.runners.protocol.reporter import Reporter

reporter = Reporter(sys.argv[1], Hello())
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(1000)
"""


def test_a_forked_loader_worker_does_not_hold_the_connection_of_its_dead_rank(
    server: Server,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKS, server.address],
        stdout=subprocess.PIPE,
        text=True,
    ) as rank:
        assert rank.stdout is not None
        child = int(rank.stdout.readline())
        try:
            rank.kill()
            assert server.hung_up.wait(PATIENCE_S)
        finally:
            os.kill(child, signal.SIGKILL)


CLOSES = """
import os, socket, sys
from distrain.runners.protocol import reporter as module
from distrain.runners.protocol.events import Hello, Stop
from distrain.runners.protocol.reporter import Reporter

module.FLUSH_S = 1e6
reporter = Reporter(sys.argv[1], Hello(), on_lost=lambda: os._exit(1))
sys.stdin.readline()
os.closerange(3, 100)
pairs = [socket.socketpair() for _ in range(20)]
reporter.send(Stop())
reporter.close()
for here, there in pairs:  # nothing was sent to the descriptors that follow, or closed
    here.send(b"x")
    assert there.recv(100) == b"x"
    there.send(b"x")
    assert here.recv(100) == b"x"
"""


def test_a_program_may_close_all_descriptors_and_use_their_numbers(server: Server) -> None:
    program = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CLOSES, server.address],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server.wait_for(len)
    _, printed = program.communicate("\n", timeout=PATIENCE_S)
    assert program.returncode == 0, printed
    assert len(printed.splitlines()) == 1
    assert server.events == [Hello()]


# --- the supervisor's address ---------------------------------------------------------------------


def test_a_script_without_a_supervisor_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTRAIN_SOCKET", raising=False)
    with Reporter.from_env() as reporter:
        assert isinstance(reporter, NullReporter)
        reporter.send(notice("to nobody"))
        assert reporter.should_continue(1)
        assert reporter.save_at_stop


def test_a_launched_script_sends_its_identity(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"SOCKET": server.address, "TOKEN": "t"}
    for name, value in given.items():
        monkeypatch.setenv(f"DISTRAIN_{name}", value)
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    with Reporter.from_env(device="cuda:1", device_uuid="GPU-1"):
        pass
    assert server.hung_up.wait(PATIENCE_S)
    assert server.events == [
        Hello(
            token="t",
            rank=3,
            local_rank=1,
            world_size=4,
            pid=os.getpid(),
            host=socket.gethostname(),
            device="cuda:1",
            device_uuid="GPU-1",
        )
    ]


def test_other_hosts_report_over_tcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = Server(listening, f"tcp:127.0.0.1:{listening.getsockname()[1]}")
        with Reporter(served.address, Hello(token="secret")) as reporter:
            reporter.send(notice("from afar"))
        assert served.hung_up.wait(PATIENCE_S)
        served.hang_up()
        assert served.events == [Hello(token="secret"), notice("from afar")]


def test_a_supervisor_on_a_host_that_does_not_respond_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_lost = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = Server(listening, f"tcp:127.0.0.1:{listening.getsockname()[1]}")
        with Reporter(served.address, Hello(), on_lost=is_lost.set):
            served.wait_for(len)
            monkeypatch.setattr(module, "is_silent", lambda _: True)
            assert is_lost.wait(PATIENCE_S)
        served.hang_up()


def test_a_missing_supervisor_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        Reporter("unix:/nonexistent/socket", Hello())


def test_a_viewer_sends_a_request_and_waits_until_it_was_read(server: Server) -> None:
    asking = threading.Thread(target=send_to_supervisor, args=(server.address, Stop(now=True)))
    asking.start()
    server.wait_for(lambda events: len(events) == 2)
    hello, stop = server.events
    assert isinstance(hello, Hello)
    assert (hello.role, stop) == ("viewer", Stop(now=True))
    server.hang_up()
    asking.join(PATIENCE_S)
    assert not asking.is_alive()


# --- a stop: all end at the same step -------------------------------------------------------------


def test_without_a_stop_training_continues(server: Server) -> None:
    with Reporter(server.address, Hello()) as reporter:
        assert all(reporter.should_continue(step) for step in range(1, 100))
        assert reporter.save_at_stop


def test_a_rank_waits_after_its_current_step_until_it_receives_the_last_step(
    server: Server,
) -> None:
    answers: list[bool] = []

    def rank() -> None:
        answers.extend(reporter.should_continue(step) for step in (8, 9, 10))

    with Reporter(server.address, Hello(rank=2)) as reporter:
        assert reporter.should_continue(7)
        server.say(Stop())
        # It is in step 8, and reports how many it has finished.
        server.wait_for(lambda events: Stopping(rank=2, step=7) in events)
        thread = threading.Thread(target=rank)
        thread.start()
        thread.join(0.1)
        assert answers == []
        server.say(StopAt(step=10, save=False))
        thread.join(PATIENCE_S)
        assert answers == [True, True, False]
        assert not reporter.save_at_stop


def test_a_second_stop_changes_nothing(server: Server) -> None:
    with Reporter(server.address, Hello()) as reporter:
        assert reporter.should_continue(3)
        server.say(Stop())
        server.wait_for(lambda events: Stopping(rank=0, step=3) in events)
        server.say(StopAt(step=4))
        server.say(Stop())
        assert not reporter.should_continue(4)
    assert sum(isinstance(event, Stopping) for event in server.events) == 1


def test_a_process_that_is_not_a_rank_receives_a_stop_without_answering(server: Server) -> None:
    heard: list[Event] = []
    with Reporter(server.address, Hello(role="launcher"), on_event=heard.append) as reporter:
        server.say(Stop(restart=True))
        server.say(Notice(time=1.0, text="and more"))
        server.say(Stop(now=True))
        while len(heard) < 3:
            time.sleep(0.01)
        reporter.send(notice("still here"))
    assert heard == [Stop(restart=True), Notice(time=1.0, text="and more"), Stop(now=True)]
    server.wait_for(lambda events: notice("still here") in events)
    assert not any(isinstance(event, Stopping) for event in server.events)


@pytest.mark.parametrize(
    "line", [b"HTTP/1.0 400 Bad request\r", b'{"type":"of the future"}', b"\xff", b"[" * 100_000]
)
def test_a_line_that_is_no_message_is_skipped(line: bytes, server: Server) -> None:
    with Reporter(server.address, Hello(rank=0)) as reporter:
        server.say_line(line)
        server.say(Stop())
        server.wait_for(lambda events: any(isinstance(each, Stopping) for each in events))
        server.say(StopAt(step=1))
        while reporter.should_continue(1):
            time.sleep(0.01)


@pytest.mark.parametrize("seed", range(20))
def test_all_ranks_stop_at_the_same_step(seed: int, server: Server) -> None:
    chance = random.Random(seed)
    ranks, steps = chance.randint(1, 4), chance.choice([5, 40, 10_000])
    # given ranks that synchronise in every step, as with an all-reduce, or never
    meets = threading.Barrier(ranks) if chance.random() < 0.5 else None
    left: dict[int, int] = {}

    def train(rank: int, pace: random.Random) -> None:
        with Reporter(server.address, Hello(rank=rank)) as reporter:
            step, goes_on = 0, True
            while goes_on and step < steps:
                time.sleep(pace.choice([0, 0, pace.random() / 500]))
                if meets:
                    meets.wait(PATIENCE_S)
                step += 1
                goes_on = reporter.should_continue(step)
            left[rank] = step
            # The code after the loop is collective: no rank disconnects before all have arrived.
            gathered.wait(PATIENCE_S)

    gathered = threading.Barrier(ranks)
    threads = [
        threading.Thread(target=train, args=(rank, random.Random(f"{seed} {rank}")))
        for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    server.wait_for(lambda events: sum(isinstance(event, Hello) for event in events) == ranks)
    # when a stop is requested at any moment, and decided as by the supervisor
    time.sleep(chance.random() / 20)
    server.say(Stop())
    deadline, settled = time.monotonic() + PATIENCE_S, False
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        answers = [event for event in server.events if isinstance(event, Stopping)]
        if len(answers) == ranks and not settled:
            server.say(StopAt(step=max(answer.step for answer in answers) + 1))
            settled = True
        time.sleep(0.001)
    # then no rank hangs, and all stop after the same step
    assert not any(thread.is_alive() for thread in threads)
    assert len(set(left.values())) == 1
    assert len(left) == ranks


@pytest.mark.parametrize("reporter", [Reporter, NullReporter])
def test_scripts_may_use_the_earlier_names(reporter: type[Reporter]) -> None:
    assert reporter.say is reporter.send
    assert reporter.goes_on is reporter.should_continue
