"""A Slurm cluster for a test: skipped where none can be made, unless it was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, ClusterError, claim, problem


@pytest.fixture(scope="session")
def claimed() -> Iterator[None]:
    """Nobody else makes or ends a cluster on this machine meanwhile."""
    why = problem()
    if "PYTEST_XDIST_WORKER" in os.environ:
        why = "a machine has one Slurm cluster, not one for each worker: run make test-slurm"
    if why and os.environ.get("DISTRAIN_SLURM") != "required":
        pytest.skip(why)
    if why:
        pytest.fail(why)
    try:
        with claim():
            yield
    except ClusterError as error:
        pytest.fail(str(error))


@pytest.fixture
def cluster(claimed: None) -> Iterator[Cluster]:
    """Two idle nodes. Each test has a cluster of its own: a new one is there at once, one with
    jobs that still end or a node that was lost would take many seconds to be as before.
    """
    try:
        cluster = Cluster.up()
    except ClusterError as error:
        pytest.fail(str(error))
    yield cluster
    cluster.down()
