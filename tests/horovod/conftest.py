"""Tests that need a Horovod that works: skipped without, unless it was asked for."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from runners import Run
from runners.horovod import problem
from tests.e2e.conftest import place, start

__all__ = ["place", "start", "started"]

Start = Callable[..., Run]
HOROVOD = {"strategy": "horovod", "launcher": "horovodrun"}


@pytest.fixture(scope="session", autouse=True)
def _horovod() -> None:
    if why := problem():
        if os.environ.get("DISTRAIN_HOROVOD") == "required":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture
def started(start: Start) -> Start:
    """Launch Horovod ranks with dotted keys changed (`__` for the dot)."""
    return lambda **changes: start(**{**HOROVOD, **changes})
