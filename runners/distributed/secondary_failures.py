"""Recognition of errors that a rank raises because another rank failed."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator

# Parts of the messages that gloo, NCCL and TCP stores raise as plain RuntimeErrors, in C++.
_CONNECTION_ERRORS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "connect timeout",
    "broken pipe",
    "timed out waiting",
    "wait timeout",
    "timeout caused pair closure",
    "socket timeout",
    "watchdog caught collective",
    "remote process exited",
    "failed to recv",
    "socket closed",
)
# Parts of messages of torch's error types whose cause is this rank: its device, a mistake in its
# program, or a port in use.
_OWN_ERRORS = (
    "ncclunhandledcudaerror",
    "ncclinvalidusage",
    "ncclinvalidargument",
    "eaddrinuse",
    "address already in use",
)
# Further parts of what NCCL prints before it aborts a rank.
_ABORTS = ("nccl error", "watchdog hang", "heartbeat mon")


def is_secondary_failure(error: BaseException, message: str) -> bool:
    """Return whether a rank raises this error when another rank has died or never came.

    An error that a program raises because of such an error counts too.
    """
    return _is_due_to_another_rank(error, message) or any(
        _is_due_to_another_rank(each, _text_of(each)) for each in _earlier_errors(error)
    )


def _is_due_to_another_rank(error: BaseException, message: str) -> bool:
    text = message.lower()
    dist = sys.modules.get("torch.distributed")  # not every program loads it
    if dist and isinstance(
        error, dist.DistNetworkError | dist.DistBackendError | dist.DistStoreError
    ):
        return not any(part in text for part in _OWN_ERRORS)
    if type(error).__name__ == "HorovodInternalError":
        return True
    is_similar = isinstance(error, RuntimeError) and any(
        part in text for part in _CONNECTION_ERRORS
    )
    return is_similar and not _is_raised_in_python(error)


def _is_raised_in_python(error: BaseException) -> bool:
    """Return whether a `raise` statement raised an error, as in a dataset that loses its server."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _earlier_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that have led to this one."""
    seen = {id(error)}
    while (earlier := _earlier_error(error)) is not None and id(earlier) not in seen:
        seen.add(id(earlier))
        yield earlier
        error = earlier


def _earlier_error(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None or error.__suppress_context__:  # raised from another, or None
        return error.__cause__
    return error.__context__


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def is_secondary_abort(last_words: str) -> bool:
    """Return whether a rank was aborted, as by NCCL's watchdog, because of another rank, and not
    because of its own device or code. `last_words` are what it printed.
    """
    text = last_words.lower()
    is_own = any(part in text for part in ("cuda error", *_OWN_ERRORS))
    return not is_own and any(part in text for part in (*_CONNECTION_ERRORS, *_ABORTS))
