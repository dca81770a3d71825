"""What the process of a rank does when its program ends with an error."""

from __future__ import annotations

import io
import os
import signal
import sys
from bdb import BdbQuit
from functools import partial
from typing import NoReturn

import pytest
import torch
from torch._utils import ExceptionWrapper
from torch.distributed import DistBackendError, DistNetworkError

from distrain.runners.distributed.secondary_failures import is_secondary_abort
from distrain.runners.instrumentation.rank_process import (
    MAX_MESSAGE,
    call,
    make_exit_failure,
    make_failure,
)


def fail() -> NoReturn:
    raise ConnectionResetError("a loader process does not answer")


def test_a_signal_handler_cannot_interrupt_the_report_of_an_error() -> None:
    def on_signal(*_: object) -> NoReturn:
        raise RuntimeError("a loader process was killed")

    on_signal.__module__ = "torch.utils.data"
    before = signal.signal(signal.SIGCHLD, on_signal)
    try:
        error = call(fail)
        os.kill(os.getpid(), signal.SIGCHLD)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert isinstance(error, ConnectionResetError)


def test_a_signal_that_waits_explains_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cause = RuntimeError("a loader process was killed")
    set_handler, waiting = signal.signal, [cause]

    def set_after_handling(number: int, handler: signal.Handlers) -> object:
        if waiting:
            raise waiting.pop()
        return set_handler(number, handler)

    def on_signal(*_: object) -> None: ...

    on_signal.__module__ = "torch.utils.data"
    monkeypatch.setattr(signal, "getsignal", lambda _: on_signal)
    monkeypatch.setattr(signal, "signal", set_after_handling)
    assert call(fail) is cause
    assert isinstance(cause.__context__, ConnectionResetError)


def test_a_handler_of_the_program_stays() -> None:
    def on_signal(*_: object) -> None: ...

    before = signal.signal(signal.SIGCHLD, on_signal)
    try:
        call(fail)
        assert signal.getsignal(signal.SIGCHLD) is on_signal
    finally:
        signal.signal(signal.SIGCHLD, before)


class TwoFieldsError(Exception):
    """torch cannot raise it again, because it takes more than a message."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("a bad: label\n  of sample 3"), "a bad: label\n  of sample 3"),
        (KeyError("label"), "'label'"),
        (AssertionError(), "AssertionError"),
        (TwoFieldsError("3.png", "is empty"), f"{__name__}.TwoFieldsError: 3.png: is empty"),
    ],
    ids=["several lines", "a key", "none", "another type"],
)
def test_the_message_of_an_error_in_a_loader_process_is_the_users(
    error: Exception, message: str
) -> None:
    try:
        try:
            raise OSError("the cause")
        except OSError as cause:
            raise error from cause
    except type(error):
        again = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(Exception, match="Caught") as raised:
        again.reraise()
    failure = make_failure(0, raised.value)
    assert failure.message == message
    assert "Caught" in failure.traceback
    assert "the cause" in failure.traceback


def test_a_long_message_keeps_what_it_begins_and_ends_with() -> None:
    names = ", ".join(f"layer{number}.weight" for number in range(1_000))
    message = make_failure(0, RuntimeError(f"missing keys: {names}; sizes differ")).message
    assert message.startswith("missing keys: layer0.weight, ")
    assert message.endswith("layer999.weight; sizes differ")
    assert len(message) < MAX_MESSAGE + 10


def test_an_error_of_cuda_is_one_sentence_of_what_it_means() -> None:
    error = RuntimeError(
        "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in the docs.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    )
    failure = make_failure(0, error)
    assert failure.message == (
        "CUDA error: device-side assert triggered; the failed call may be earlier than the "
        "traceback shows: set CUDA_LAUNCH_BLOCKING=1 to see it"
    )
    assert "Search for" in failure.traceback


@pytest.mark.parametrize(("is_terminal", "is_explained"), [(False, True), (True, False)])
def test_a_breakpoint_without_a_terminal_is_explained(
    is_terminal: bool, is_explained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.StringIO()
    monkeypatch.setattr(stdin, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stdin", stdin)
    assert ("debugpy" in make_failure(0, BdbQuit()).message) == is_explained


def test_a_traceback_begins_in_the_users_code() -> None:
    error = call(fail)
    assert error is not None
    assert "in call" in make_failure(0, error).traceback
    trace = make_failure(0, error, in_users_code=True).traceback
    assert "in call" not in trace
    assert f'File "{__file__}"' in trace.splitlines()[1]
    of_torch = call(partial(torch.ones(2).reshape, 3))
    assert of_torch is not None
    assert "in call" in make_failure(0, of_torch, in_users_code=True).traceback


def test_an_error_that_thousands_have_led_to_is_reported() -> None:
    error: Exception = ValueError("try 0")
    for number in range(1, 2 * sys.getrecursionlimit()):
        error, error.__context__ = ValueError(f"try {number}"), error
    failure = make_failure(0, error, in_users_code=True)
    assert failure.message == str(error)
    assert "try 0" in failure.traceback


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("no data", "exited before training had ended: no data"),
        (None, "exited with code 0 before training had ended"),
    ],
)
def test_an_exit_of_a_rank_is_named_by_its_message_or_code(
    status: str | None, message: str
) -> None:
    assert make_failure(0, SystemExit(status)).message == message


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (1, "ValueError", "a bad label"),
        ("no data", "SystemExit", "no data"),
        (0, None, None),
    ],
)
def test_an_exit_with_a_code_after_an_error_is_named_by_the_error(
    status: object, kind: str | None, message: str | None
) -> None:
    def work() -> None:
        try:
            raise ValueError("a bad label")
        except ValueError:
            sys.exit(status)  # type: ignore[arg-type]

    error = call(work)
    assert isinstance(error, SystemExit)
    failure = make_exit_failure(0, error, 7)
    assert (failure and failure.error, failure and failure.message) == (kind, message)


def test_an_exit_from_none_is_named_by_its_code() -> None:
    error = SystemExit(3)
    error.__context__, error.__suppress_context__ = ValueError("handled"), True
    failure = make_exit_failure(0, error, 7)
    assert failure is not None
    assert failure.message == "exited with code 3"


@pytest.mark.parametrize(
    ("error", "is_secondary"),
    [
        (DistBackendError("unhandled cuda error\nncclUnhandledCudaError: out of memory"), False),
        (DistBackendError("invalid usage\nncclInvalidUsage: Duplicate GPU detected"), False),
        (DistNetworkError("failed to listen: EADDRINUSE, address already in use"), False),
        (DistBackendError("ncclRemoteError: a remote process has exited"), True),
        (DistNetworkError("Connection reset by peer"), True),
        (RuntimeError("Connection closed by peer [127.0.0.1]:7044"), True),
        (RuntimeError("Application timeout caused pair closure"), True),
        (ValueError("Connection closed by peer"), False),
    ],
)
def test_only_an_error_that_another_rank_causes_is_secondary(
    error: Exception, is_secondary: bool
) -> None:
    assert make_failure(0, error).secondary == is_secondary


@pytest.mark.parametrize(
    ("last_words", "is_secondary"),
    [
        ("[horovod/common/gloo/http_store.cc:54] Wait timeout after 10 seconds", True),
        ("[gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4", False),
        ("Watchdog caught collective operation timeout", True),
        ("CUDA error: device-side assert triggered", False),
        ("free(): invalid pointer", False),
        ("std::bad_alloc", False),
    ],
)
def test_a_rank_that_aborts_because_of_another_is_known_by_what_it_printed(
    last_words: str, is_secondary: bool
) -> None:
    assert is_secondary_abort(last_words) == is_secondary


def test_an_error_raised_from_none_is_the_ranks_own() -> None:
    error = ValueError("bad config")
    error.__context__ = RuntimeError("Connection closed by peer [127.0.0.1]:7044")
    assert make_failure(0, error).secondary
    error.__suppress_context__ = True
    assert not make_failure(0, error).secondary


def raised(error: Exception, cause: BaseException | None = None) -> BaseException:
    def work() -> NoReturn:
        raise error from cause

    caught = call(work)
    assert caught is not None
    return caught


def test_an_error_that_the_program_raises_itself_is_secondary_only_because_of_another() -> None:
    of_gloo = RuntimeError("Connection closed by peer [127.0.0.1]:7044")
    own = raised(RuntimeError("cannot read shard 7: Connection reset by peer"))
    assert not make_failure(0, own).secondary
    for cause, is_secondary in ((of_gloo, True), (own, False)):
        error = raised(ValueError("epoch 1 failed"), cause)
        assert make_failure(0, error).secondary == is_secondary
