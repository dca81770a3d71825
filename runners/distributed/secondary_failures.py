"""Recognition of errors that a rank raises because another rank failed."""

from __future__ import annotations

import torch.distributed as dist

# Parts of the messages that gloo, NCCL and TCP stores raise as plain RuntimeErrors.
_CONNECTION_ERRORS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "socket timeout",
    "watchdog caught collective",
    "remote process exited",
    "failed to recv",
    "socket closed",
)


def is_secondary_failure(error: BaseException, message: str) -> bool:
    """Return whether a rank raises this error when another rank has died or never came."""
    if isinstance(error, dist.DistNetworkError | dist.DistBackendError | dist.DistStoreError):
        return True
    # Compared by name, because only runs with Horovod import it.
    if type(error).__name__ == "HorovodInternalError":
        return True
    text = message.lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _CONNECTION_ERRORS)
