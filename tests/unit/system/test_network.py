"""Which address and interface of this host are chosen; see also tests/cluster/hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from ipaddress import ip_address

import pytest

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.supervision.addresses import listen_address
from distrain.runners.system import network, scheduler_env
from distrain.runners.system.network import GLOO, NCCL, choose_interface

LOOPBACK = network.loopback_interface()
NOBODY = "no-such-host.invalid"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (GLOO, NCCL):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("place", ["127.0.0.1", "127.0.0.1:80", "localhost:80"])
def test_a_host_reaches_itself_over_the_loopback(place: str) -> None:
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


@pytest.mark.parametrize("loopback", ["127.0.1.1", "127.0.0.1"])
def test_a_host_whose_name_means_its_loopback_interface_gives_others_another_address(
    loopback: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {"node": loopback, "node.lan": loopback, "localhost": "127.0.0.1"}
    monkeypatch.setattr(socket, "gethostname", lambda: "node")
    monkeypatch.setattr(network, "address_of", addresses.__getitem__)
    monkeypatch.setattr(scheduler_env, "address_of", addresses.__getitem__)
    monkeypatch.setattr(network, "listening_address", lambda: "10.0.0.5")
    monkeypatch.setattr(scheduler_env, "listening_address", lambda: "10.0.0.5")
    interfaces = {"lo": [ip_address("127.0.0.1")], "eth0": [ip_address("10.0.0.5")]}
    monkeypatch.setattr(network, "list_interfaces", lambda: interfaces)
    assert network.reachable_address("node:4711") == "10.0.0.5:4711"
    assert network.reachable_address("node.lan") == "10.0.0.5:0"  # any port
    config = RunConfig.from_dict({"report": {"listen": "node:1"}})
    assert listen_address(config, plan_here(config), None, print) == "10.0.0.5:1"
    assert network.reachable_address("localhost:4711") == "localhost:4711"
    assert scheduler_env.report_address("tcp://node:4711") == "10.0.0.5"
    assert scheduler_env.report_address("tcp://localhost:4711") == "127.0.0.1"
    del interfaces["eth0"]  # without a network all ranks are here
    assert network.reachable_address("node:4711") == "node:4711"


def test_an_unknown_name_is_reported() -> None:
    with pytest.raises(DistrainError, match=f"^no address is found for the name {NOBODY}"):
        network.own_address(f"{NOBODY}:80")


def test_ranks_of_one_host_communicate_over_the_loopback() -> None:
    assert choose_interface().variables == {GLOO: LOOPBACK}


def test_ranks_communicate_over_the_interface_that_reaches_the_rendezvous() -> None:
    found = choose_interface(target="127.0.0.1:4242")
    assert found.variables == {GLOO: LOOPBACK, NCCL: f"={LOOPBACK}"}
    assert found.why == (
        f"ranks communicate over {LOOPBACK} (127.0.0.1), which leads to 127.0.0.1:4242"
    )


def test_the_config_overrides_the_route_to_the_rendezvous() -> None:
    found = choose_interface(LOOPBACK, target="192.0.2.1:4242")
    assert found.variables == {GLOO: LOOPBACK, NCCL: f"={LOOPBACK}"}
    assert found.why == f"ranks communicate over {LOOPBACK}, as dist.interface says"


def test_a_missing_interface_is_refused_with_the_existing_ones() -> None:
    with pytest.raises(ConfigError, match="this host has no ib7; it has ") as refused:
        choose_interface(f"{LOOPBACK},ib7")
    assert refused.value.problems[0][0] == "dist.interface"
    assert str(LOOPBACK) in str(refused.value)


def test_variables_of_the_user_override_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GLOO, "ib0")
    found = choose_interface(LOOPBACK, target="127.0.0.1:4242")
    assert found.variables == {GLOO: "ib0", NCCL: f"={LOOPBACK}"}
    assert found.why == (
        f"ranks communicate over {LOOPBACK}, as dist.interface says; "
        f"{GLOO}=ib0 of the environment wins"
    )
    monkeypatch.setenv(NCCL, "^docker")
    found = choose_interface("no-such", target=NOBODY)
    assert found.variables == {GLOO: "ib0", NCCL: "^docker"}
    assert found.why == (
        f"{GLOO}=ib0 of the environment wins; {NCCL}=^docker of the environment wins"
    )


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GLOO, "")
    assert choose_interface().variables == {GLOO: LOOPBACK}


def test_a_plan_reports_the_interface_that_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig().with_changes({"devices": "cpu:2", "dist.interface": LOOPBACK})
    monkeypatch.setenv(NCCL, "ib0")
    why = (
        f"ranks communicate over {LOOPBACK}, as dist.interface says; "
        f"{NCCL}=ib0 of the environment wins"
    )
    assert plan_here(config).notices == [why]
    monkeypatch.delenv(NCCL)
    assert plan_here(RunConfig().with_changes({"devices": "cpu:2"})).notices == []


def test_a_plan_with_a_missing_interface_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^dist\.interface: this host has no ib7; it has "):
        plan_here(RunConfig().with_changes({"devices": "cpu:2", "dist.interface": "ib7"}))


def test_the_module_loads_neither_torch_nor_psutil() -> None:
    code = (
        "import sys, distrain.runners.system.network; print({'torch', 'psutil'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
