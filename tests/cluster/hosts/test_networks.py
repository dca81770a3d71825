"""Which address and interface a host chooses, with one network or several."""

from __future__ import annotations

import sys

import pytest

from tests.support.namespaces import SWITCH, Host

EVALUATE = """
import sys
from distrain.runners.system import network
from distrain.runners.errors import DistrainError
try:
    print(eval(sys.argv[1]))
except DistrainError as error:
    print(f"{type(error).__name__}: {error}")
"""


def evaluate(host: Host, expression: str, **variables: str) -> str:
    """Evaluate an expression about `network` on the host; return its value or error as text."""
    done = host.run(sys.executable, "-c", EVALUATE, expression, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def add_second_network(host: Host) -> None:
    """Give the host an interface in another network, without other hosts."""
    for words in (
        ("link", "add", "ib0", "type", "bridge"),
        ("address", "add", "10.213.66.2/24", "dev", "ib0"),
        ("link", "set", "ib0", "up"),
    ):
        assert host.run("ip", *words).returncode == 0


def remove_default_route(host: Host) -> None:
    assert host.run("ip", "route", "delete", "default").returncode == 0


def test_a_host_uses_the_address_that_reaches_the_other_host(hosts: list[Host]) -> None:
    first, second = hosts
    add_second_network(second)
    assert evaluate(second, f"network.own_address('{first.address}:4242')") == second.address
    assert evaluate(second, "network.own_address('10.213.66.9')") == "10.213.66.2"
    assert evaluate(second, "network.own_address('127.0.0.1')") == "127.0.0.1"
    assert evaluate(second, f"network.own_address('{second.address}')") == second.address
    assert evaluate(second, "network.interface_of('10.213.66.2')") == "ib0"


def test_a_missing_route_is_reported(hosts: list[Host]) -> None:
    remove_default_route(hosts[0])
    assert evaluate(hosts[0], "network.own_address('192.0.2.7')") == (
        "DistrainError: there is no route from here to 192.0.2.7: Network is unreachable"
    )


def test_a_host_listens_on_the_interface_of_its_default_route(hosts: list[Host]) -> None:
    add_second_network(hosts[0])
    assert evaluate(hosts[0], "network.listening_address()") == hosts[0].address


def test_a_host_without_a_default_route_listens_on_its_only_network(hosts: list[Host]) -> None:
    remove_default_route(hosts[0])
    assert evaluate(hosts[0], "network.listening_address()") == hosts[0].address


def test_several_networks_without_a_default_route_require_a_choice(hosts: list[Host]) -> None:
    remove_default_route(hosts[0])
    add_second_network(hosts[0])
    output = evaluate(hosts[0], "network.listening_address()")
    assert output.startswith(
        "ConfigError: report.listen: other hosts need an address of this one: "
    )
    assert sorted(output.partition("one of ")[2].split(", ")) == [
        f"{hosts[0].address} (eth0)",
        "10.213.66.2 (ib0)",
    ]


def test_a_host_without_a_network_is_reported(hosts: list[Host]) -> None:
    hosts[0].run("ip", "address", "flush", "dev", "eth0")
    assert evaluate(hosts[0], "network.listening_address()") == (
        "ConfigError: report.listen: other hosts need an address of this one: "
        "but this host is in no network"
    )


def test_ranks_communicate_over_the_interface_that_reaches_the_rendezvous(
    hosts: list[Host],
) -> None:
    first, second = hosts
    add_second_network(second)
    unset = {"GLOO_SOCKET_IFNAME": "", "NCCL_SOCKET_IFNAME": ""}
    expression = f"network.choose_interface(target='{first.address}:4242')"
    assert evaluate(second, f"{expression}.why", **unset) == (
        f"ranks communicate over eth0 ({second.address}), which leads to {first.address}:4242"
    )
    chosen = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert evaluate(second, f"{expression}.variables", **unset) == str(chosen)
    assert evaluate(second, "network.choose_interface().variables", **unset) == str(
        {"GLOO_SOCKET_IFNAME": "lo"}
    )


@pytest.mark.parametrize("server", [SWITCH, "10.213.65.250"], ids=["refuses", "is silent"])
def test_looking_up_a_name_has_a_time_limit(hosts: list[Host], server: str) -> None:
    (hosts[0].folder / "resolv.conf").write_text(
        f"nameserver {server}\noptions timeout:30 attempts:5\n"
    )
    output = evaluate(hosts[0], "network.own_address('h1')")
    assert output.startswith("DistrainError: no address is found for the name h1")
    assert evaluate(hosts[0], "network.resolves('h1', 0.5)") == "False"
