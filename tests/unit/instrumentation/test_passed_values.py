"""Whatever a program passes to distrain, messages arrive, and what is left out is printed."""

from __future__ import annotations

import io
import signal
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, init_device_mesh

import distrain
from distrain.runners.instrumentation import api, logged_values, problems
from distrain.runners.instrumentation.plain_values import to_setting
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.protocol.events import (
    Event,
    Logged,
    LoggedStats,
    Notice,
    RankEvaluation,
    ScriptSettings,
    Window,
    decode,
    encode,
)
from distrain.runners.protocol.reporter import NullReporter
from distrain.runners.supervision.connection import MAX_LINE_BYTES


class Nameless:
    def __str__(self) -> str:
        raise ValueError


class Text(str):
    __slots__ = ()


class Supervisor(NullReporter):
    """Receives what a session sends, as lines that must be valid."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        line = encode(event)
        assert len(line) <= MAX_LINE_BYTES
        self.events.append(decode(line))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def logged(self) -> dict[str, LoggedStats]:
        return {name: value for event in self.of(Logged) for name, value in event.values.items()}


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Make this process a rank, and return what it reports."""
    supervisor = Supervisor()
    monkeypatch.setattr(api, "_session", RankSession(supervisor, 0, window_s=0.0, skip_steps=0))
    monkeypatch.setattr(problems, "_was_printed", False)
    return supervisor


def flush() -> None:
    assert api._session is not None
    api._session.flush()


def use_phase(name: str) -> None:
    with distrain.phase(name):
        pass


ESCAPED = "\0" * 10_000  # each character takes six bytes in JSON
UNUSUAL: dict[str, tuple[Callable[[], object], Callable[[Supervisor], bool]]] = {
    "a metric that is not finite": (
        lambda: distrain.log_eval({"loss": nan, "top1": 0.5}, samples=2),
        lambda got: got.of(RankEvaluation)[0].metrics == {"loss": None, "top1": 0.5},
    ),
    "many metrics with long names": (
        lambda: distrain.log_eval({f"{n}{ESCAPED}": 1.0 for n in range(2000)}, samples=1),
        lambda got: len(got.of(RankEvaluation)[0].metrics) == 500,
    ),
    "a metric without a value": (
        lambda: distrain.log_eval({"bad": "high", "top1": 0.5}, samples=2),
        lambda got: got.of(RankEvaluation)[0].metrics == {"top1": 0.5},
    ),
    "samples as a float": (
        lambda: [distrain.step(samples=32.0), flush()],  # type: ignore[arg-type]
        lambda got: got.of(Window)[0].samples == 32,
    ),
    "samples of numpy": (
        lambda: (distrain.step(np.int64(3)), flush()),  # type: ignore[arg-type]
        lambda got: got.of(Window)[0].samples == 3,
    ),
    "samples that are no number": (
        lambda: [distrain.step(samples="many"), flush()],  # type: ignore[arg-type]
        lambda got: (got.of(Window)[0].steps, got.of(Window)[0].samples) == (1, 0),
    ),
    "a negative number of samples": (
        lambda: [distrain.step(samples=-32), flush()],
        lambda got: (got.of(Window)[0].steps, got.of(Window)[0].samples) == (1, 0),
    ),
    "an evaluation of a negative number of samples": (
        lambda: distrain.log_eval({"loss": 1.0}, samples=-1),
        lambda got: got.of(RankEvaluation) == [],
    ),
    "a phase whose name cannot be read": (
        lambda: [use_phase(Nameless()), distrain.log({"loss": 1.0})],  # type: ignore[arg-type]
        lambda got: [*got.logged] == ["loss"],
    ),
    "names that control a terminal": (
        lambda: [
            distrain.log_eval({"lo\x1b[2Jss": 0.5}, samples=2),
            distrain.log({"a\nb": 1.0}),
            use_phase("c\x07"),
        ],
        lambda got: (
            [*got.of(RankEvaluation)[0].metrics, *got.logged] == ["lo·[2Jss", "a b", "phase/c·"]
        ),
    ),
    "a step beyond 2**53": (
        lambda: (distrain.log({"late": 1.0}, step=time.time_ns()), distrain.log({"loss": 1.0})),
        lambda got: [*got.logged] == ["loss"],
    ),
    "values without names": (
        lambda: (distrain.log(5), distrain.log({"loss": 1.0})),  # type: ignore[arg-type]
        lambda got: [*got.logged] == ["loss"],
    ),
    "settings without names": (
        lambda: (distrain.init([1, 2]), distrain.log({"loss": 1.0})),  # type: ignore[arg-type]
        lambda got: [*got.logged] == ["loss"],
    ),
    "many curves with long names": (
        lambda: distrain.log({f"{n:04}{ESCAPED}": float(n) for n in range(5000)}),
        lambda got: len(got.logged) == 5000,
    ),
    "more names than are recorded": (
        lambda: distrain.log({f"{n}": float(n) for n in range(5001)}),
        lambda got: len(got.logged) == 5000,
    ),
    "arrays with one element": (
        lambda: distrain.log({"a": np.array([1.5]), "b": np.array(2), "c": np.float32(3)}),
        lambda got: [stats.last for stats in got.logged.values()] == [1.5, 2.0, 3.0],
    ),
    "a name that is not UTF-8": (
        lambda: distrain.log({"\udcff": 1.0, Text("loss"): 2.0}),
        lambda got: [*got.logged] == ["\\udcff", "loss"],
    ),
    "values of which one is bad": (
        lambda: distrain.log({"a": 1, "b": "text", "c": 1j, "loss": np.float64(2.0)}),
        lambda got: [*got.logged] == ["a", "loss"],
    ),
    "numbers too large for a float": (
        lambda: [
            distrain.log({"loss": 10**400, "lr": 0.1}),
            distrain.log_eval({"top1": -(10**400)}, samples=2),
            distrain.init({"budget": 10**400, "part": Fraction(10**400)}),
        ],
        lambda got: (
            [got.logged["loss"].last, got.of(RankEvaluation)[0].metrics] == [None, {"top1": None}]
            and [*got.of(ScriptSettings)[-1].config] == ["budget", "part"]
        ),
    ),
    "many long settings": (
        lambda: distrain.init({f"{n}{ESCAPED}": ESCAPED for n in range(2000)}),
        lambda got: sum(len(event.config) for event in got.of(ScriptSettings)) == 1000,
    ),
    "one setting of 2 MB": (
        lambda: distrain.init({"text": "x" * 2_000_000, "lr": 0.1}),
        lambda got: got.of(ScriptSettings)[0].config == {"text": "x" * 4000, "lr": 0.1},
    ),
}
LOST = {
    "a phase whose name cannot be read": "a phase",
    "many metrics with long names": "more than 500 metrics",
    "a metric without a value": "'bad'",
    "samples that are no number": "the samples of a step: samples must be a whole number, not ",
    "a negative number of samples": "the samples of a step: samples must not be negative, as ",
    "an evaluation of a negative number of samples": "something: samples must not be negative",
    "a step beyond 2**53": "something: step must be a whole number up to 2**53",
    "values without names": "something: the values of log must be a mapping of names to values, ",
    "settings without names": "something: the config of init must be a mapping of names to values",
    "more names than are recorded": "more than 5,000 names",
    "values of which one is bad": "'b', a str: could not convert string to float: 'text'",
    "many long settings": "more than 1,000 settings",
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_a_program_passes_becomes_messages_that_arrive(
    what: str, received: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    act, arrives = UNUSUAL[what]
    act()
    assert arrives(received), received.events
    expected = f"distrain could not record {LOST[what]}" if what in LOST else ""
    printed = capsys.readouterr().err
    assert printed.startswith(expected)
    assert bool(printed) == bool(expected)
    assert "Traceback" not in printed or ": " not in LOST[what]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(0.1), 0.1),
        (np.int64(3), 3),
        (type("Level", (int,), {})(2), 2),
        (Text("sgd"), "sgd"),
        (True, True),
        (None, None),
        (inf, "inf"),
        (2**70, str(2**70)),
        ("/data/\udcff", "/data/\\udcff"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_settings_are_plain_values(value: object, plain: object) -> None:
    found = to_setting(value)
    assert (found, type(found)) == (plain, type(plain))


# --- values on devices ----------------------------------------------------------------------------


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_a_dtensor_is_read_if_that_needs_no_collective(
    received: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh = init_device_mesh("cpu", (1,))
    for name, placement in (("whole", Replicate()), ("partial", Partial())):
        distrain.log({name: DTensor.from_local(torch.tensor(2.0), mesh, [placement])})
    assert [*received.logged] == ["whole"]
    assert "full_tensor() of all ranks" in capsys.readouterr().err


class DeviceTensor:
    """A tensor on a GPU, as far as logging sees it."""

    is_cuda = True

    def __init__(self, value: float, device: str) -> None:
        self.value, self.device = value, device

    def detach(self) -> DeviceTensor:
        return self

    float = clone = detach

    def reshape(self, _: object) -> DeviceTensor:
        return self


class Devices:
    """The functions of torch that copy values of devices, which are never the current device."""

    def __init__(self) -> None:
        self.is_done = True
        self.cuda = SimpleNamespace(Event=self._event, current_stream=lambda device: device)

    def stack(self, tensors: list[DeviceTensor]) -> SimpleNamespace:
        (device,) = {tensor.device for tensor in tensors}  # torch stacks those of one device
        values = [tensor.value for tensor in tensors]
        return SimpleNamespace(values=values, device=device, shape=(), dtype=None)

    def empty(self, *_: object, **__: object) -> SimpleNamespace:
        host = SimpleNamespace(device=None, values=[])
        host.copy_ = lambda tensors, **_: vars(host).update(vars(tensors))
        host.tolist = lambda: host.values
        self._host = host
        return host

    def _event(self) -> SimpleNamespace:
        def record(stream: str) -> None:
            assert stream == self._host.device, "the copy is in the stream of its own device"

        return SimpleNamespace(record=record, query=lambda: self.is_done)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    made = Devices()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_values_of_several_devices_are_copied_each_on_its_own(
    devices: Devices, received: Supervisor
) -> None:
    tensors = {f"loss/{n}": DeviceTensor(n, f"cuda:{n % 2 + 1}") for n in range(4)}
    distrain.log({**tensors, "lr": 0.5})
    assert {name: stats.last for name, stats in received.logged.items()} == {
        "loss/0": 0.0, "loss/1": 1.0, "loss/2": 2.0, "loss/3": 3.0, "lr": 0.5,
    }  # fmt: skip


def test_a_program_that_has_failed_does_not_wait_for_its_device_forever(
    devices: Devices, received: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given values of which the last are on a device that does not answer
    monkeypatch.setattr("distrain.runners.instrumentation.rank_session.FAILED_DEVICE_S", 0.05)
    session = api._session
    assert session is not None
    distrain.log({"lr": 0.5})
    devices.is_done = False
    distrain.log({"loss": DeviceTensor(1.0, "cuda:0")})
    # when the program ends, and its clock fails too
    monkeypatch.setattr(session.loop.timer, "stop", lambda: 1 / 0)
    began = time.monotonic()
    session.flush(has_failed=True)
    assert time.monotonic() - began < 10
    # then what could be read has arrived
    assert [*received.logged] == ["lr"]


def test_of_too_many_values_the_older_ones_are_dropped_and_counted(
    received: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_values, "MOST_ADDED", 100)
    session = api._session
    assert session is not None
    monkeypatch.setattr(session, "_log_due", inf)
    distrain.log({"once": 5.0})
    for value in range(249):
        distrain.log({"loss": value})
    flush()
    (notice,) = received.of(Notice)
    kept = [event.values["loss"] for event in received.of(Logged) if "loss" in event.values]
    dropped = int(notice.text.split()[2])
    assert notice.text.startswith("rank 0: ")
    assert (kept[-1].last, sum(each.count for each in kept) + dropped) == (248.0, 249)
    assert received.logged["once"].last == 5.0


def test_a_notice_names_the_first_step_that_goes_back(received: Supervisor) -> None:
    session: Any = api._session
    for fold in range(3):
        for epoch in range(5):
            distrain.log({"loss": 10.0 * fold + epoch}, step=epoch)
            session.log({"loss": epoch}, step=0, source="wandb.log")  # the same once more
    flush()
    (notice,) = received.of(Notice)
    assert notice.text.endswith("goes back, as that of 'loss' from 4 to 0")
    assert received.logged["loss"].last == 24.0


def test_a_problem_ends_nothing_where_it_cannot_be_printed(
    received: Supervisor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(problems, "_was_printed", False)
        monkeypatch.setattr(sys, "stderr", stream)
        problems.print_first()
    assert capsys.readouterr().out == ""


class _Interrupted:
    """A value during whose reading a signal arrives."""

    def item(self) -> float:
        signal.raise_signal(signal.SIGUSR1)
        return 1.0


def test_an_exception_of_a_signal_handler_belongs_to_the_program(received: Supervisor) -> None:
    def handle(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(TimeoutError):
            distrain.log({"loss": _Interrupted()})
    finally:
        signal.signal(signal.SIGUSR1, before)
    distrain.log({"loss": 2.0})
    flush()
    assert received.logged["loss"].last == 2.0
