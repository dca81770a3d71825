"""Calls that may never return, such as those of a driver that does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def call_unbounded(function: Callable[[], T]) -> T:
    """Call a function in a thread and return its result.

    The process can end while the function does not return; `asyncio.to_thread` would wait for it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def pass_on(result: T | None, error: BaseException | None) -> None:
        if future.done():  # cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(pass_on, result, error)

    threading.Thread(target=work, name="unbounded call", daemon=True).start()
    return await future
