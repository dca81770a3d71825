"""What ranks find in their environment, whoever starts them and whatever started us."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners import launchers
from runners.config import RunConfig
from runners.connecting import Endpoint
from runners.events import Event, Printed
from runners.launchers import horovodrun
from runners.launchers.beside import MOST, shipped
from runners.launchers.place import PLACES, take_place
from runners.plan import make_plan

FOREIGN = [*PLACES, *(name for names in PLACES.values() for name in names)]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*FOREIGN, *(name for name in os.environ if name.startswith("HOROVOD_"))]:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_place_in_another_job_is_no_place_in_ours(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, "1")
    config = RunConfig().with_changes({"devices": "cpu:2"})
    environment = launchers.environment(
        config, make_plan(config), tmp_path, Endpoint("unix:/socket")
    )
    assert name not in environment


@pytest.mark.parametrize("which", range(3), ids=["Horovod", "Open MPI", "MPICH"])
def test_a_rank_takes_the_place_that_its_launcher_gives(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    for name in places:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(PLACES[name][which], places[name])
    take_place()
    assert {name: os.environ.pop(name) for name in places} == places


@pytest.mark.parametrize(("timeout_s", "waits", "looks"), [(300, 300, 15), (5, 5, 1), (0.5, 1, 1)])
def test_horovod_waits_as_long_as_a_collective_may_take(
    timeout_s: float, waits: int, looks: int, tmp_path: Path
) -> None:
    config = RunConfig().with_changes({"dist.timeout_s": timeout_s})
    found = horovodrun.settings(config, tmp_path)
    assert found["HOROVOD_GLOO_TIMEOUT_SECONDS"] == str(waits)
    assert found["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] == str(waits)
    assert found["HOROVOD_STALL_CHECK_TIME_SECONDS"] == str(looks)


def test_what_a_person_has_set_for_horovod_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "7")
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "ib0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert horovodrun.settings(RunConfig(), tmp_path)["HOROVOD_CYCLE_TIME"] == "7"
    assert horovodrun.slot(1, 2, 0, 0, "127.0.0.1", "1234")["HOROVOD_GLOO_IFACE"] == "ib0"


def test_a_variable_without_a_value_is_not_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "")
    assert horovodrun.settings(RunConfig(), tmp_path)["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "300"


def test_ranks_of_ours_meet_over_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CONTROLLER", "mpi")
    assert horovodrun.slot(1, 2, 0, 0, "127.0.0.1", "1234")["HOROVOD_CONTROLLER"] == "gloo"


def test_a_rank_of_horovod_is_told_its_place_in_this_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CROSS_SIZE", "5")
    slot = horovodrun.slot(1, 2, 0, 1, "127.0.0.1", "1234")
    assert (slot["HOROVOD_RANK"], slot["HOROVOD_SIZE"], slot["HOROVOD_CROSS_SIZE"]) == (
        "1",
        "2",
        "1",
    )


def test_a_letter_that_is_sent_in_two_pieces_arrives_whole(tmp_path: Path) -> None:
    text, said = "x" + "█é" * MOST, list[Event]()
    (tmp_path / "rank-3.log").write_text(text)
    with shipped(said.append, tmp_path):
        pass
    parts = [each for each in said if isinstance(each, Printed)]
    assert len(parts) > 1
    assert {each.rank for each in parts} == {3}
    assert "".join(each.text for each in parts) == text
