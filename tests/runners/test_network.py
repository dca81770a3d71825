"""Which address and interface of this host are taken; hosts of other shapes are in tests/hosts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from runners import network
from runners.config import RunConfig
from runners.errors import ConfigError, DistrainError
from runners.network import GLOO, NCCL, sockets
from runners.plan import make_plan

LOOPBACK = network.loopback_interface()
NOBODY = "no-such-host.invalid"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (GLOO, NCCL):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("place", ["127.0.0.1", "127.0.0.1:80", "localhost:80"])
def test_a_host_reaches_itself_by_the_loopback(place: str) -> None:
    own = network.own_address(place)
    assert own in ("127.0.0.1", "::1")
    assert network.interface_of(own) == LOOPBACK


def test_an_address_of_another_host_is_on_no_interface() -> None:
    with pytest.raises(DistrainError, match=r"^192\.0\.2\.1 is no address of this host; it has "):
        network.interface_of("192.0.2.1")


def test_a_name_resolves_or_does_not() -> None:
    assert network.resolves("localhost")
    assert network.resolves("127.0.0.1")
    assert not network.resolves(NOBODY)
    assert not network.resolves("a" * 64 + ".invalid")  # a label has at most 63 characters


def test_a_name_that_is_not_known_is_told() -> None:
    with pytest.raises(DistrainError, match=f"^no address is found for the name {NOBODY}"):
        network.own_address(f"{NOBODY}:80")


def test_ranks_of_one_host_talk_over_the_loopback() -> None:
    assert sockets().variables == {GLOO: LOOPBACK}


def test_ranks_talk_over_the_interface_that_leads_to_the_meeting_place() -> None:
    found = sockets(towards="127.0.0.1:4242")
    assert found.variables == {GLOO: LOOPBACK, NCCL: f"={LOOPBACK}"}
    assert found.why == (f"ranks talk over {LOOPBACK} (127.0.0.1), which leads to 127.0.0.1:4242")


def test_the_config_goes_before_the_way_to_the_meeting_place() -> None:
    found = sockets(LOOPBACK, towards="192.0.2.1:4242")
    assert found.variables == {GLOO: LOOPBACK, NCCL: f"={LOOPBACK}"}
    assert found.why == f"ranks talk over {LOOPBACK}, as dist.interface says"


def test_an_interface_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="this host has no ib7; it has ") as refused:
        sockets(f"{LOOPBACK},ib7")
    assert refused.value.problems[0][0] == "dist.interface"
    assert str(LOOPBACK) in str(refused.value)


def test_what_a_person_has_set_goes_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GLOO, "ib0")
    found = sockets(LOOPBACK, towards="127.0.0.1:4242")
    assert found.variables == {GLOO: "ib0", NCCL: f"={LOOPBACK}"}
    assert found.why == (
        f"ranks talk over {LOOPBACK}, as dist.interface says; {GLOO}=ib0 of the environment wins"
    )
    monkeypatch.setenv(NCCL, "^docker")
    found = sockets("no-such", towards=NOBODY)
    assert found.variables == {GLOO: "ib0", NCCL: "^docker"}
    assert found.why == (
        f"{GLOO}=ib0 of the environment wins; {NCCL}=^docker of the environment wins"
    )


def test_a_variable_without_a_value_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GLOO, "")
    assert sockets().variables == {GLOO: LOOPBACK}


def test_a_plan_tells_the_choice_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig().with_changes({"devices": "cpu:2", "dist.interface": LOOPBACK})
    monkeypatch.setenv(NCCL, "ib0")
    why = f"ranks talk over {LOOPBACK}, as dist.interface says; {NCCL}=ib0 of the environment wins"
    assert make_plan(config).notices == [why]
    monkeypatch.delenv(NCCL)
    assert make_plan(RunConfig().with_changes({"devices": "cpu:2"})).notices == []


def test_a_plan_with_an_interface_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^dist\.interface: this host has no ib7; it has "):
        make_plan(RunConfig().with_changes({"devices": "cpu:2", "dist.interface": "ib7"}))


def test_it_loads_neither_torch_nor_psutil() -> None:
    code = "import sys, runners.network; print({'torch', 'psutil'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
