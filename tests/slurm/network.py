"""Two nodes' network on one machine: a namespace for each, joined by a bridge in the root one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.namespaces import ip

OURS = "distrain"
BRIDGE = f"{OURS}-bridge"
CONTROLLER = "10.213.64.1"  # the bridge's own address, that of the root namespace
LENGTH = 24


@dataclass(frozen=True)
class Node:
    """One node; its network namespace and its end of the link at the bridge have one name."""

    name: str
    address: str

    @property
    def link(self) -> str:
        return f"{OURS}-{self.name}"

    def command(self, *command: str) -> list[str]:
        """`command` as a process of the node: on its network and with its host name."""
        named = 'hostname "$0" && exec "$@"'
        network = f"--net=/run/netns/{self.link}"
        return ["nsenter", network, "unshare", "--uts", "sh", "-c", named, self.name, *command]

    def pids(self) -> list[int]:
        """Whatever runs on the node, jobs with all that they have started too."""
        if self.link not in _namespaces():
            return []
        return [int(pid) for pid in ip("netns", "pids", self.link).split()]


NODES = (Node("n1", "10.213.64.11"), Node("n2", "10.213.64.12"))


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
    """All that `build` makes, or as much of it as there is. Processes must have ended before."""
    for link in _links():
        if link in left():  # one end of a link takes the other with it
            ip("link", "delete", link)
    for namespace in _namespaces():
        ip("netns", "delete", namespace)


def left() -> list[str]:
    """The links and namespaces of ours that there are."""
    return _links() + _namespaces()


def cut(node: Node) -> None:
    """The node's packets and those for it are lost; its connections are not told."""
    ip("link", "set", node.link, "down")


def restore(node: Node) -> None:
    ip("link", "set", node.link, "up")


def _links() -> list[str]:
    names = [link["ifname"] for link in json.loads(ip("-json", "link", "show") or "[]")]
    return [name for name in names if name.startswith(OURS)]


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob(f"{OURS}*")) if folder.is_dir() else []
