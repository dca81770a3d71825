"""Calls that may never return, such as those of a driver that does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def call_unbounded(function: Callable[[], T]) -> T:
    """Call a function in a thread and return its result.

    The process can end while the function does not return; `asyncio.to_thread` would wait for it.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the thread goes on where this is cancelled

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="unbounded call", daemon=True).start()
    return await asyncio.wrap_future(future)
