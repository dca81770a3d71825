"""Recognition of errors that a rank raises because another rank failed."""

from __future__ import annotations

import sys

# Parts of the messages that gloo, NCCL and TCP stores raise as plain RuntimeErrors.
_CONNECTION_ERRORS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "connect timeout",
    "broken pipe",
    "timed out waiting",
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


def is_secondary_failure(error: BaseException, message: str) -> bool:
    """Return whether a rank raises this error when another rank has died or never came."""
    text = message.lower()
    dist = sys.modules.get("torch.distributed")  # not every program loads it
    if dist and isinstance(
        error, dist.DistNetworkError | dist.DistBackendError | dist.DistStoreError
    ):
        return not any(part in text for part in _OWN_ERRORS)
    if type(error).__name__ == "HorovodInternalError":
        return True
    return isinstance(error, RuntimeError) and any(part in text for part in _CONNECTION_ERRORS)
