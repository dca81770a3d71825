"""Hosts for a test: skipped where none can be made, unless they were asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.pair import Pair
from tests.namespaces import Host, network, problem


@pytest.fixture(scope="session")
def possible() -> None:
    if not (why := problem()):
        return
    if os.environ.get("DISTRAIN_HOSTS") == "required":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
def hosts(possible: None, tmp_path: Path) -> Iterator[list[Host]]:
    """Two hosts, h0 and h1."""
    with network(tmp_path / "hosts") as hosts:
        yield hosts


@pytest.fixture
def pair(hosts: list[Host]) -> Iterator[Pair]:
    with Pair(hosts) as pair:
        yield pair
