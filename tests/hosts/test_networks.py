"""Which address and interface a host takes, on hosts of several shapes."""

from __future__ import annotations

import sys

import pytest

from tests.namespaces import SWITCH, Host

SAYS = """
import sys
from runners import network
from runners.errors import DistrainError
try:
    print(eval(sys.argv[1]))
except DistrainError as error:
    print(f"{type(error).__name__}: {error}")
"""


def says(host: Host, expression: str, **variables: str) -> str:
    """What an expression about `network` is on the host, or its error."""
    done = host.run(sys.executable, "-c", SAYS, expression, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def in_a_second_network(host: Host) -> None:
    """A card of another network, in which there is nobody."""
    for words in (
        ("link", "add", "ib0", "type", "bridge"),
        ("address", "add", "10.213.66.2/24", "dev", "ib0"),
        ("link", "set", "ib0", "up"),
    ):
        assert host.run("ip", *words).returncode == 0


def without_a_default_route(host: Host) -> None:
    assert host.run("ip", "route", "delete", "default").returncode == 0


def test_the_address_is_that_by_which_the_other_host_is_reached(hosts: list[Host]) -> None:
    first, second = hosts
    in_a_second_network(second)
    assert says(second, f"network.own_address('{first.address}:4242')") == second.address
    assert says(second, "network.own_address('10.213.66.9')") == "10.213.66.2"
    assert says(second, "network.own_address('127.0.0.1')") == "127.0.0.1"
    assert says(second, f"network.own_address('{second.address}')") == second.address
    assert says(second, "network.interface_of('10.213.66.2')") == "ib0"


def test_another_network_without_a_route_there_is_told(hosts: list[Host]) -> None:
    without_a_default_route(hosts[0])
    assert says(hosts[0], "network.own_address('192.0.2.7')") == (
        "DistrainError: no way leads from here to 192.0.2.7: Network is unreachable"
    )


def test_a_host_listens_where_its_default_route_leaves(hosts: list[Host]) -> None:
    in_a_second_network(hosts[0])
    assert says(hosts[0], "network.listening_address()") == hosts[0].address


def test_without_one_it_listens_in_the_only_network(hosts: list[Host]) -> None:
    without_a_default_route(hosts[0])
    assert says(hosts[0], "network.listening_address()") == hosts[0].address


def test_of_several_networks_a_person_has_to_choose(hosts: list[Host]) -> None:
    without_a_default_route(hosts[0])
    in_a_second_network(hosts[0])
    said = says(hosts[0], "network.listening_address()")
    assert said.startswith("ConfigError: report.listen: other hosts need an address of this one: ")
    assert sorted(said.partition("one of ")[2].split(", ")) == [
        f"{hosts[0].address} (eth0)",
        "10.213.66.2 (ib0)",
    ]


def test_a_host_of_no_network_says_so(hosts: list[Host]) -> None:
    hosts[0].run("ip", "address", "flush", "dev", "eth0")
    assert says(hosts[0], "network.listening_address()") == (
        "ConfigError: report.listen: other hosts need an address of this one: "
        "but this host is in no network"
    )


def test_ranks_talk_over_the_card_that_leads_to_the_meeting_place(hosts: list[Host]) -> None:
    first, second = hosts
    in_a_second_network(second)
    unset = {"GLOO_SOCKET_IFNAME": "", "NCCL_SOCKET_IFNAME": ""}
    expression = f"network.sockets(towards='{first.address}:4242')"
    assert says(second, f"{expression}.why", **unset) == (
        f"ranks talk over eth0 ({second.address}), which leads to {first.address}:4242"
    )
    chosen = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert says(second, f"{expression}.variables", **unset) == str(chosen)
    assert says(second, "network.sockets().variables", **unset) == str({"GLOO_SOCKET_IFNAME": "lo"})


@pytest.mark.parametrize("server", [SWITCH, "10.213.65.250"], ids=["refuses", "is silent"])
def test_a_name_is_looked_for_only_so_long(hosts: list[Host], server: str) -> None:
    (hosts[0].folder / "resolv.conf").write_text(
        f"nameserver {server}\noptions timeout:30 attempts:5\n"
    )
    said = says(hosts[0], "network.own_address('h1')")
    assert said.startswith("DistrainError: no address is found for the name h1")
    assert says(hosts[0], "network.resolves('h1', 0.5)") == "False"
