"""What another's scheduler tells a rank of launcher env: its place, and where all ranks meet."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from runners.config import RunConfig
from runners.connecting import is_place, joined, split
from runners.errors import DistrainError
from runners.network import address_of, interface_of, listening_address

# What a scheduler may set for each rank, in torch's names.
GIVEN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
NEEDED = ("RANK", "WORLD_SIZE")
LEAST = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
MOST = 1_000_000
FILE, TCP = "file://", "tcp://"


class Task(NamedTuple):
    """One rank, of `local_size` on its host."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int

    @classmethod
    def here(cls) -> Task:
        """Of this process; its environment has no `problems`. Without a LOCAL_RANK it is alone on
        its host, without a LOCAL_WORLD_SIZE all ranks may be there.
        """
        rank, world = (int(os.environ[name]) for name in NEEDED)
        local = os.environ.get("LOCAL_RANK")
        size = os.environ.get("LOCAL_WORLD_SIZE") or (world if local else 1)
        return cls(rank, world, int(local or 0), int(size))


def problems(config: RunConfig) -> list[tuple[str, str]]:
    """What the environment, or dist.init_method, lacks or has wrong; each with its key."""
    method = config.dist.init_method or "env://"
    needed = [*NEEDED, *(["MASTER_ADDR", "MASTER_PORT"] if method == "env://" else [])]
    found = [f"{name} is not set" for name in needed if not os.environ.get(name)]
    found += [
        f"{name} is {value!r}, no whole number from {least} on"
        for name, least in LEAST.items()
        if (value := os.environ.get(name)) and not least <= _number(value) <= MOST
    ]
    if "MASTER_PORT" in needed and (port := os.environ.get("MASTER_PORT")):
        found += [f"MASTER_PORT is {port!r}, no port"] if not 0 < _number(port) < 1 << 16 else []
    if not found:
        task = Task.here()
        if task.rank >= task.world_size:
            found = [f"RANK is {task.rank} and WORLD_SIZE {task.world_size}: ranks count from 0"]
        elif task.local_rank >= task.local_size:
            size = f"LOCAL_WORLD_SIZE {task.local_size}"
            found = [f"LOCAL_RANK is {task.local_rank} and {size}: ranks count from 0"]
    told = "; ".join(found)
    wrong = [("launcher", f"env takes each rank's place from its environment: {told}")]
    return (wrong if found else []) + _of_method(method)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else -1


def _of_method(method: str) -> list[tuple[str, str]]:
    kind, _, rest = method.partition("://")
    wrong = {
        "env": "env:// stands alone" if rest else "",
        "tcp": "" if is_place(rest) else f"{method!r} is not tcp://HOST:PORT",
        "file": _of_file(method, Path(rest)),
    }[kind]
    return [("dist.init_method", wrong)] if wrong else []


def _of_file(method: str, path: Path) -> str:
    if not path.is_absolute() or path.is_dir():
        return f"{method!r} is not file:///PATH of a file that all ranks can reach"
    return "" if path.parent.is_dir() else f"there is no folder {path.parent}"


def place(config: RunConfig) -> str:
    """Where the ranks meet: HOST:PORT, or file:///PATH."""
    method = config.dist.init_method or "env://"
    if method.startswith(FILE):
        return method
    if method.startswith(TCP):
        return method.removeprefix(TCP)
    return joined(os.environ["MASTER_ADDR"].strip("[]"), os.environ["MASTER_PORT"])


def report_address(config: RunConfig) -> str:
    """Where rank 0's supervisor hears the others, if nobody says: at the address by which they
    meet where that is of this host. Raises ConfigError where there is a choice to make.
    """
    meets = place(config)
    if not meets.startswith(FILE):
        with suppress(DistrainError):
            address = address_of(split(meets)[0])
            interface_of(address)
            return address
    return listening_address()


def towards(meeting: str, report: str) -> str:
    """The host, by HOST:PORT, that the ranks' interface must lead to."""
    return report.removeprefix("tcp:") if meeting.startswith(FILE) else meeting


def note(meeting: str) -> Path:
    """The file beside file:///PATH that tells where rank 0's supervisor hears the others."""
    return Path(f"{meeting.removeprefix(FILE)}.distrain")
