"""Calls that may never return, such as those of a driver that does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def call_unbounded(function: Callable[[], T]) -> T:
    """Call a function in a thread and return its result, as `asyncio.to_thread` does.

    The process can end while the function does not return.
    """
    return await asyncio.wrap_future(_start(function))


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Call a function and return its result. Raises TimeoutError if it takes longer.

    The process can end while the function does not return.
    """
    return _start(function).result(seconds)


def _start(function: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on nothing cancels it: the thread goes on

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="unbounded call", daemon=True).start()
    return future
