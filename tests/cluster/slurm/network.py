"""The network of two nodes on one machine: a namespace each, joined by a bridge in the root one.

Each worker of pytest-xdist has a cluster of its own, with its own addresses and names.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tests.support.namespaces import ip

NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PREFIX = f"slurm{NUMBER}-"  # of names of links, which have 15 characters at most
BRIDGE = f"{PREFIX}bridge"
SUBNET = f"10.214.{NUMBER}"
CONTROLLER = f"{SUBNET}.1"  # the address of the bridge, in the root namespace
LENGTH = 24


@dataclass(frozen=True)
class Node:
    """One node; its network namespace and its end of the link at the bridge have one name."""

    name: str
    address: str

    @property
    def link(self) -> str:
        return f"{PREFIX}{self.name}"

    def command(self, *command: str) -> list[str]:
        """Return `command` as a process of the node: on its network and with its host name."""
        named = 'hostname "$0" && exec "$@"'
        network = f"--net=/run/netns/{self.link}"
        return ["nsenter", network, "unshare", "--uts", "sh", "-c", named, self.name, *command]

    def pids(self) -> list[int]:
        """Return the pids of all processes on the node, those of jobs included."""
        if self.link not in _namespaces():
            return []
        return [int(pid) for pid in ip("netns", "pids", self.link).split()]


NODES = (Node("n1", f"{SUBNET}.11"), Node("n2", f"{SUBNET}.12"))


def build() -> None:
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("address", "add", f"{CONTROLLER}/{LENGTH}", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for node in NODES:
        inside = ("-netns", node.link)
        ip("netns", "add", node.link)
        ip("link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.link)
        ip(*inside, "address", "add", f"{node.address}/{LENGTH}", "dev", "eth0")
        ip(*inside, "link", "set", "eth0", "up")
        ip(*inside, "link", "set", "lo", "up")
        ip("link", "set", node.link, "master", BRIDGE, "up")


def remove() -> None:
    """Remove what `build` makes, or as much of it as exists. Processes must have ended before."""
    for link in _links():
        if link in left():  # one end of a link takes the other with it
            ip("link", "delete", link)
    for namespace in _namespaces():
        ip("netns", "delete", namespace)


def left() -> list[str]:
    """Return the links and namespaces of this cluster that exist."""
    return _links() + _namespaces()


def cut(node: Node) -> None:
    """Drop all packets from and to the node; its connections get no error."""
    ip("link", "set", node.link, "down")


def restore(node: Node) -> None:
    ip("link", "set", node.link, "up")


def _links() -> list[str]:
    names = [link["ifname"] for link in json.loads(ip("-json", "link", "show") or "[]")]
    return [name for name in names if name.startswith(PREFIX)]


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"{PREFIX}*")) if folder.is_dir() else []
