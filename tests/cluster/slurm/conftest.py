"""A Slurm cluster. Its tests are skipped where none can run, unless DISTRAIN_SLURM=required."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.slurm.cluster import Cluster, ClusterError, claim, problem


@pytest.fixture(scope="session")
def claimed() -> Iterator[None]:
    """Keep other processes from starting or ending this worker's cluster."""
    why = problem()
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
    """Start a cluster of two idle nodes for one test.

    A new cluster starts at once. To reuse one whose jobs are ending, or that has lost a node,
    would take many seconds.
    """
    try:
        cluster = Cluster.up()
    except ClusterError as error:
        pytest.fail(str(error))
    yield cluster
    cluster.down()
