"""Horovod's ranks on two hosts that share no file system are one run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hosts.conftest import possible
from tests.hosts.test_runs import JOIN, Pair, alone, evaluation, pair

__all__ = ["pair", "possible"]

HOROVOD: dict[str, Any] = {"strategy": "horovod", "launcher": "horovodrun"}


@pytest.fixture
def named(pair: Pair) -> Pair:
    """The name of each host leads to its address there."""
    for host in (pair.first, pair.second):
        (host.folder / "hosts").write_text(f"127.0.0.1 localhost\n{host.address} {host.name}\n")
    return pair


def test_a_host_whose_name_leads_nowhere_is_told_so(pair: Pair) -> None:
    both = pair.begin(**HOROVOD), pair.join()
    assert pair.ended(both[0]) == 1
    assert "Horovod meets at the address of this host's name, and h0 leads nowhere" in pair.told


def test_two_hosts_evaluate_as_one_process(named: Pair) -> None:
    both = named.begin(**HOROVOD, train__epochs=1), named.join()
    assert [named.ended(process) for process in both] == [0, 0], named.told
    assert evaluation(named) == pytest.approx(alone(named, train__epochs=1), rel=1e-3)
    assert {rank.rank: rank.host for rank in named.record.ranks()} == {
        0: "h0", 1: "h0", 2: "h1", 3: "h1",
    }  # fmt: skip
    named.assert_nothing_left()


@pytest.mark.parametrize("number", [1, 2])
def test_a_rank_that_is_killed_is_named_with_its_host(named: Pair, number: int) -> None:
    both = named.train(**HOROVOD)
    named.rank(number).kill()
    assert [named.ended(process) for process in both] == [1, 1]
    assert f"rank {number} on h{number // 2}: killed by SIGKILL" in named.second.said(JOIN)
    named.assert_nothing_left()


def test_a_stop_ends_both_at_one_step_with_a_checkpoint(named: Pair) -> None:
    both = named.train(**HOROVOD)
    named.distrain(named.first, "stop.log", "stop", "latest")
    assert [named.ended(process) for process in both] == [130, 130], named.told
    assert "stopped on request after step" in named.record.state.reason
    assert named.record.last_checkpoint is not None
