"""Addresses and interfaces of this host: where others reach it, and what its ranks use."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.protocol.client import join_address, split_address

Interfaces = dict[str, list[IPv4Address | IPv6Address]]
"""The addresses of each interface, by its name."""

NAME_SERVER_S = 5.0  # for the answer of a name server
# Addresses for documentation (RFC 5737, 3849): packets there would leave by the default route.
ANYWHERE = ("192.0.2.1", "2001:db8::1")
DISCARD_PORT = 9
GLOO = "GLOO_SOCKET_IFNAME"
NCCL = "NCCL_SOCKET_IFNAME"


def own_address(target: str) -> str:
    """Return the address of this host from which packets leave to HOST or HOST:PORT.

    Raises DistrainError if there is no route, or if the name has no address.
    """
    family, address = _look_up(split_address(target)[0])
    with socket.socket(family, socket.SOCK_DGRAM) as link:
        try:
            link.connect((address, DISCARD_PORT))  # chooses the route, and sends nothing
        except OSError as error:
            text = f"there is no route from here to {target}: {error.strerror}"
            raise DistrainError(text) from None
        return str(link.getsockname()[0])


def interface_of(address: str, interfaces: Interfaces | None = None) -> str:
    """Return the interface with an address of this host; raises DistrainError if none has it."""
    interfaces = list_interfaces() if interfaces is None else interfaces
    wanted = ip_address(address)
    for name, addresses in interfaces.items():
        if wanted in addresses:
            return name
    raise DistrainError(f"{address} is no address of this host; it has {_listed(interfaces)}")


def resolves(name: str, seconds: float = NAME_SERVER_S) -> bool:
    """Return whether a host name has an address, as far as is known within so many seconds."""
    with contextlib.suppress(DistrainError):
        _look_up(name, seconds)
        return True
    return False


def address_of(name: str, seconds: float = NAME_SERVER_S) -> str:
    """Return the address of a host; raises DistrainError if none is found in so many seconds."""
    return _look_up(name, seconds)[1]


def is_loopback(name: str) -> bool:
    """Return whether a name or address means the loopback interface on this host."""
    with contextlib.suppress(DistrainError):
        return ip_address(address_of(name)).is_loopback
    return False


def is_own_loopback_name(name: str) -> bool:
    """Return whether a name is this host's and means its loopback interface here, as on Debian.

    On other hosts it means an address by which they reach this one, if it is in a network.
    """
    own = socket.gethostname().partition(".")[0]
    is_own = name.partition(".")[0] == own != "localhost"
    return is_own and is_loopback(name) and _is_in_a_network()


def _is_in_a_network() -> bool:
    addresses = itertools.chain.from_iterable(list_interfaces().values())
    return any(not (each.is_loopback or each.is_link_local) for each in addresses)


def reachable_address(address: str) -> str:
    """Return HOST or HOST:PORT as other hosts reach it, where HOST is such a name.

    Raises ConfigError as `listening_address`.
    """
    host, port = split_address(address)
    if is_own_loopback_name(host):
        return join_address(listening_address(), port)
    return address


def listening_address() -> str:
    """Return where others reach this host: the address of the default route or the only network.

    Raises ConfigError (key `report.listen`) if there are several networks, or none.
    """
    for target in ANYWHERE:
        with contextlib.suppress(DistrainError):
            return own_address(target)
    interfaces = list_interfaces()
    found = [each for addresses in interfaces.values() for each in addresses if _is_reachable(each)]
    if len(found) == 1:
        return str(found[0])
    why = f"one of {_listed(interfaces)}" if found else "but this host is in no network"
    raise ConfigError([("report.listen", f"other hosts need an address of this one: {why}")])


class InterfaceChoice(NamedTuple):
    """The variables that tell ranks their interface, and why it is not the expected one.

    `why` is empty if there is nothing to explain.
    """

    variables: dict[str, str]
    why: str


def choose_interface(
    interface: str | None = None,
    target: str | None = None,
    *,
    interfaces: Interfaces | None = None,
    environment: Mapping[str, str] | None = None,
) -> InterfaceChoice:
    """Choose the interface over which the ranks of this host communicate.

    It is what is set in the environment, else `interface` of the config, else the interface by
    which `target` is reached, the address at which all hosts meet. Without a target, the ranks are
    all on this host and use the loopback. `interfaces` and `environment` are by default those of
    this host and process.

    Raises ConfigError if there is no such interface, DistrainError if the target is not reachable.
    """
    environment = os.environ if environment is None else environment
    preset = {name: environment[name] for name in (GLOO, NCCL) if environment.get(name)}
    chosen: dict[str, str] = {}
    reasons: list[str] = []
    if len(preset) < 2:
        variables, why = _choose(interface, target, interfaces)
        chosen = {name: value for name, value in variables.items() if name not in preset}
        if chosen and why:
            reasons.append(why)
    reasons += [f"{name}={value} of the environment wins" for name, value in preset.items()]
    return InterfaceChoice(chosen | preset, "; ".join(reasons))


def _choose(
    interface: str | None, target: str | None, interfaces: Interfaces | None
) -> tuple[dict[str, str], str]:
    if interface:
        if problem := missing_interfaces(interface, interfaces):
            raise ConfigError([("dist.interface", problem)])
        return _for_both(interface), f"ranks communicate over {interface}, as dist.interface says"
    if target is None:
        loopback = loopback_interface(interfaces)
        return ({GLOO: loopback} if loopback else {}), ""
    address = own_address(target)
    interface = interface_of(address, interfaces)
    why = f"ranks communicate over {interface} ({address}), which leads to {target}"
    return _for_both(interface), why


def _for_both(interface: str) -> dict[str, str]:
    # Without the "=", NCCL matches every interface whose name begins so.
    return {GLOO: interface, NCCL: f"={interface}"}


def missing_interfaces(names: str, interfaces: Interfaces | None = None) -> str:
    """Return which of some interfaces, with commas between, this host lacks; empty if none."""
    interfaces = list_interfaces() if interfaces is None else interfaces
    absent = [name for name in names.split(",") if name not in interfaces]
    if not absent:
        return ""
    return f"this host has no {', '.join(absent)}; it has {', '.join(interfaces)}"


def loopback_interface(interfaces: Interfaces | None = None) -> str | None:
    """Return the loopback interface: ranks of one host need no route between them."""
    with contextlib.suppress(DistrainError):
        return interface_of("127.0.0.1", interfaces)
    return None


def _look_up(name: str, seconds: float = NAME_SERVER_S) -> tuple[socket.AddressFamily, str]:
    """Return the first address of a host.

    If a name server does not answer, the C library waits for much longer than a person would:
    a thread asks, and is left behind.
    """
    answers: list[tuple[socket.AddressFamily, str]] = []

    def ask() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(name, DISCARD_PORT, type=socket.SOCK_DGRAM)
            family, _, _, _, address = found[0]
            answers.append((family, str(address[0])))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answers:
        late = f" within {seconds:g} s" if thread.is_alive() else ""
        raise DistrainError(f"no address is found for the name {name}{late}; use its address")
    return answers[0]


def list_interfaces() -> Interfaces:
    """Return the interfaces of this host with their IP addresses. Loads psutil."""
    import psutil

    found = {}
    for name, addresses in psutil.net_if_addrs().items():
        known = [
            each.address for each in addresses if each.family in (socket.AF_INET, socket.AF_INET6)
        ]
        found[str(name)] = [ip_address(each.partition("%")[0]) for each in known]
    return found


def _is_reachable(address: IPv4Address | IPv6Address) -> bool:
    """Return whether other hosts may reach an address; IPv6 ones are not counted."""
    return (
        isinstance(address, IPv4Address) and not address.is_loopback and not address.is_link_local
    )


def _listed(interfaces: Interfaces) -> str:
    return ", ".join(
        f"{address} ({name})"
        for name, addresses in interfaces.items()
        for address in addresses
        if _is_reachable(address)
    )
