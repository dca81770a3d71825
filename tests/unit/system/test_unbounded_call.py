"""Calls that may never return."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from distrain.runners.system.unbounded_call import call_unbounded

ENDS = """
import asyncio, threading
from distrain.runners.system.unbounded_call import call_unbounded

async def main():
    called = threading.Event()
    def never_return():
        called.set()
        threading.Event().wait()
    task = asyncio.create_task(call_unbounded(never_return))
    await asyncio.to_thread(called.wait)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

asyncio.run(main())
"""


def test_a_result_is_returned() -> None:
    assert asyncio.run(call_unbounded(lambda: 5)) == 5


def test_an_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(call_unbounded(lambda: 1 // 0))


def test_the_process_ends_although_a_call_has_not_returned() -> None:
    assert subprocess.run([sys.executable, "-c", ENDS], timeout=120).returncode == 0
