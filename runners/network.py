"""Addresses and interfaces of this host: where others reach it, and over what its ranks talk."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from runners.connecting import split
from runners.errors import ConfigError, DistrainError

PATIENCE_S = 5.0  # for an answer of a name server
# Of nobody (RFC 5737, 3849): packets there would leave by the default route. None is sent.
ANYWHERE = ("192.0.2.1", "2001:db8::1")
DISCARD = 9
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


def own_address(towards: str) -> str:
    """The address of this host from which packets to another leave, of which HOST or HOST:PORT is
    given. Raises DistrainError where there is no way to it, or its name is not known.
    """
    family, address = _found(split(towards)[0])
    with socket.socket(family, socket.SOCK_DGRAM) as link:
        try:
            link.connect((address, DISCARD))  # chooses the route, and sends nothing
        except OSError as error:
            raise DistrainError(f"no way leads from here to {towards}: {error.strerror}") from None
        return str(link.getsockname()[0])


def interface_of(address: str) -> str:
    """The interface that has an address of this host; raises DistrainError where none has."""
    wanted = ip_address(address)
    for name, theirs in _interfaces().items():
        if wanted in theirs:
            return name
    raise DistrainError(f"{address} is no address of this host; it has {_listed()}")


def resolves(name: str, seconds: float = PATIENCE_S) -> bool:
    """Whether a host name leads to an address, as far as can be known in so many seconds."""
    with contextlib.suppress(DistrainError):
        _found(name, seconds)
        return True
    return False


def address_of(name: str, seconds: float = PATIENCE_S) -> str:
    """The address of a host; raises DistrainError where none is found in so many seconds."""
    return _found(name, seconds)[1]


def listening_address() -> str:
    """Where others reach this host, if nobody says: the address of the default route, else that of
    the only network. Raises ConfigError where there is a choice to make, or none.
    """
    for somebody in ANYWHERE:
        with contextlib.suppress(DistrainError):
            return own_address(somebody)
    found = [str(address) for own in _interfaces().values() for address in own if _leads(address)]
    if len(found) == 1:
        return found[0]
    why = f"one of {_listed()}" if found else "but this host is in no network"
    raise ConfigError([("report.listen", f"other hosts need an address of this one: {why}")])


class Sockets(NamedTuple):
    """What ranks find in their environment of the interface to use, and why it is another than
    they would expect; empty where there is nothing to say.
    """

    variables: dict[str, str]
    why: str


def sockets(interface: str | None = None, towards: str | None = None) -> Sockets:
    """Over what ranks of this host talk: what a person has set in the environment, else the
    `interface` of the config, else that by which `towards`, where all hosts meet, is reached. Ranks
    of one host, who meet nowhere else, need no more than the loopback.

    Raises ConfigError where there is no such interface, DistrainError where no way leads there.
    """
    theirs = {name: value for name in (GLOO, NCCL) if (value := os.environ.get(name))}
    ours, why = _chosen(interface, towards) if len(theirs) < 2 else ({}, "")
    ours = {name: value for name, value in ours.items() if name not in theirs}
    said = [f"{name}={value} of the environment wins" for name, value in theirs.items()]
    return Sockets(ours | theirs, "; ".join(filter(None, [why if ours else "", *said])))


def _chosen(interface: str | None, towards: str | None) -> tuple[dict[str, str], str]:
    if interface:
        if lacks := missing(interface):
            raise ConfigError([("dist.interface", lacks)])
        return _for_both(interface), f"ranks talk over {interface}, as dist.interface says"
    if towards is None:
        loopback = loopback_interface()
        return ({GLOO: loopback} if loopback else {}), ""
    address = own_address(towards)
    interface = interface_of(address)
    why = f"ranks talk over {interface} ({address}), which leads to {towards}"
    return _for_both(interface), why


def _for_both(interface: str) -> dict[str, str]:
    # NCCL takes a name for the beginning of names, unless it is told otherwise.
    return {GLOO: interface, NCCL: f"={interface}"}


def missing(interface: str) -> str:
    """What this host lacks of an interface, or of several with commas between; else nothing."""
    there = _interfaces()
    absent = [name for name in interface.split(",") if name not in there]
    return f"this host has no {', '.join(absent)}; it has {', '.join(there)}" if absent else ""


def loopback_interface() -> str | None:
    """The loopback interface: ranks of one host need no route between them."""
    with contextlib.suppress(DistrainError):
        return interface_of("127.0.0.1")
    return None


def _found(name: str, seconds: float = PATIENCE_S) -> tuple[socket.AddressFamily, str]:
    """The first address of a host. A name server may not answer, and the C library then waits for
    much longer than a person: hence a thread that nobody waits for.
    """
    answers: list[tuple[socket.AddressFamily, str]] = []

    def ask() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            family, _, _, _, place = socket.getaddrinfo(name, DISCARD, type=socket.SOCK_DGRAM)[0]
            answers.append((family, str(place[0])))

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    asks.join(seconds)
    if not answers:
        late = f" within {seconds:g} s" if asks.is_alive() else ""
        raise DistrainError(f"no address is found for the name {name}{late}; use its address")
    return answers[0]


def _interfaces() -> dict[str, list[IPv4Address | IPv6Address]]:
    """The addresses of each interface; without those of hardware."""
    import psutil

    found = {}
    for name, addresses in psutil.net_if_addrs().items():
        known = [
            each.address for each in addresses if each.family in (socket.AF_INET, socket.AF_INET6)
        ]
        found[str(name)] = [ip_address(each.partition("%")[0]) for each in known]
    return found


def _leads(address: IPv4Address | IPv6Address) -> bool:
    """Whether others may reach it; one of IPv6 counts for nothing while there is the other."""
    return (
        isinstance(address, IPv4Address) and not address.is_loopback and not address.is_link_local
    )


def _listed() -> str:
    return ", ".join(
        f"{address} ({name})"
        for name, addresses in _interfaces().items()
        for address in addresses
        if _leads(address)
    )
