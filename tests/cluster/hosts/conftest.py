"""Two hosts. Their tests are skipped without namespaces, unless DISTRAIN_HOSTS=required."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts.pair import Pair
from tests.support.namespaces import Host, network, problem


@pytest.fixture(scope="session")
def namespaces_available() -> None:
    if not (why := problem()):
        return
    if os.environ.get("DISTRAIN_HOSTS") == "required":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
def hosts(namespaces_available: None, tmp_path: Path) -> Iterator[list[Host]]:
    """Yield two hosts, h0 and h1."""
    with network(tmp_path / "hosts") as hosts:
        yield hosts


@pytest.fixture
def pair(hosts: list[Host]) -> Iterator[Pair]:
    with Pair(hosts) as pair:
        yield pair
