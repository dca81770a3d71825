"""A Horovod run on two hosts that share no file system and cannot resolve each other's names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.hosts.conftest import hosts, namespaces_available, pair
from tests.cluster.hosts.pair import JOIN, Pair

__all__ = ["hosts", "namespaces_available", "pair"]

HOROVOD: dict[str, Any] = {"strategy": "horovod", "launcher": "horovodrun"}


def test_two_hosts_evaluate_as_one_process(pair: Pair) -> None:
    pair.ranks = 4
    both = pair.begin(**HOROVOD, train__epochs=1), pair.join()
    assert [pair.exit_code(process) for process in both] == [0, 0], pair.output
    assert pair.evaluation() == pytest.approx(pair.evaluate_alone(train__epochs=1), rel=1e-3)
    assert {rank.rank: rank.host for rank in pair.record.ranks()} == {
        0: "h0", 1: "h0", 2: "h1", 3: "h1",
    }  # fmt: skip
    pair.assert_nothing_left()


@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_rank_is_named_with_its_host(pair: Pair, number: int) -> None:
    pair.ranks = 4
    both = pair.train(**HOROVOD)
    pair.rank(number).kill()
    assert [pair.exit_code(process) for process in both] == [1, 1]
    assert f"rank {number} on h{number // 2}: killed by SIGKILL" in pair.second.log_text(JOIN)
    pair.assert_nothing_left()


def test_a_stop_ends_both_hosts_at_one_step_with_a_checkpoint(pair: Pair) -> None:
    both = pair.train(**HOROVOD)
    pair.distrain(pair.first, "stop.log", "stop", "latest")
    assert [pair.exit_code(process) for process in both] == [130, 130], pair.output
    assert "stopped on request after step" in pair.record.state.reason
    assert pair.record.last_checkpoint is not None
