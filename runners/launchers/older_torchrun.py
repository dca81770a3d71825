"""What torch.distributed.run of older versions of torch lacks."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import FrameType

from torch.distributed.elastic.multiprocessing import api


def adapt(own_signals: Iterable[signal.Signals]) -> None:
    """Make the elastic agent of this process behave as that of torch 2.13.

    It leaves `own_signals` to the handlers that they have now, for which it has an option only
    since torch 2.9. It also waits for ranks that SIGINT ends as long as
    TORCH_ELASTIC_SHUTDOWN_TIMEOUT says: before torch 2.12 it kills them after 30 s, also while
    they save.
    """
    handlers = {each: signal.getsignal(each) for each in own_signals}
    default_handler = api._terminate_process_handler
    close = api.PContext.close

    def handle(number: int, frame: FrameType | None) -> None:
        handler = handlers.get(signal.Signals(number))
        (handler if callable(handler) else default_handler)(number, frame)

    def close_patiently(
        ranks: api.PContext, death_sig: signal.Signals | None = None, timeout: int = 30
    ) -> None:
        if death_sig == signal.SIGINT:
            timeout = int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", timeout))
        close(ranks, death_sig, timeout)

    api._terminate_process_handler = handle  # type: ignore[assignment]
    api.PContext.close = close_patiently  # type: ignore[assignment, method-assign]
