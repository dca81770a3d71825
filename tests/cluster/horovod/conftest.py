"""Tests that need a working Horovod: skipped without it, unless DISTRAIN_HOROVOD=required."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from distrain import Run
from distrain.runners.horovod import problem
from tests.integration.runs.conftest import start, user_folder

__all__ = ["start", "started", "user_folder"]

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
    """Return a function that launches Horovod ranks with keys changed (`__` for the dot)."""
    return lambda **changes: start(**{**HOROVOD, **changes})
