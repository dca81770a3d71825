"""What another scheduler sets in the environment of a rank: its position, where all ranks meet.

Used for `launcher = "env"`. `init_method` is dist.init_method of the config: env://, tcp://HOST:PORT
or file:///PATH.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from distrain.runners.errors import DistrainError
from distrain.runners.protocol.client import is_address, join_address, split_address
from distrain.runners.system.network import (
    address_of,
    interface_of,
    is_loopback,
    is_own_loopback_name,
    listening_address,
)

# What a scheduler may set for each rank, in torch's names.
GIVEN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
REQUIRED = ("RANK", "WORLD_SIZE")
MINIMUM = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
MAXIMUM = 1_000_000
ENV, TCP, FILE = "env://", "tcp://", "file://"


class ScheduledRank(NamedTuple):
    """The position of one rank, of `local_size` on its host."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read the position from an environment without `problems`.

        Without a LOCAL_RANK the rank is alone on its host; with one but no LOCAL_WORLD_SIZE, all
        ranks may be there.
        """
        rank, world_size = (int(environment[name]) for name in REQUIRED)
        local_rank = environment.get("LOCAL_RANK")
        default_size = world_size if local_rank else 1
        local_size = int(environment.get("LOCAL_WORLD_SIZE") or default_size)
        return cls(rank, world_size, int(local_rank or 0), local_size)


def problems(environment: Mapping[str, str], init_method: str | None) -> list[str]:
    """Return what an environment lacks or has wrong, in parts of a sentence."""
    required = list(REQUIRED)
    if (init_method or ENV) == ENV:
        required += ["MASTER_ADDR", "MASTER_PORT"]
    found = [f"{name} is not set" for name in required if not environment.get(name)]
    for name, least in MINIMUM.items():
        value = environment.get(name)
        if value and not least <= _number(value) <= MAXIMUM:
            found.append(f"{name} is {value!r}, not a whole number ≥ {least}")
    port = environment.get("MASTER_PORT")
    if "MASTER_PORT" in required and port and not 0 < _number(port) < 1 << 16:
        found.append(f"MASTER_PORT is {port!r}, not a port")
    return found or _contradictions(ScheduledRank.of(environment))


def _contradictions(position: ScheduledRank) -> list[str]:
    rank, world_size, local_rank, local_size = position
    if rank >= world_size:
        return [f"RANK is {rank} and WORLD_SIZE {world_size}: ranks count from 0"]
    if local_rank >= local_size:
        size = f"LOCAL_WORLD_SIZE {local_size}"
        return [f"LOCAL_RANK is {local_rank} and {size}: ranks count from 0"]
    return []


def _number(text: str) -> int:
    is_number = text.isdecimal() and text.isascii() and len(text) < 10
    return int(text) if is_number else -1


def init_method_problem(init_method: str | None) -> str:
    """Return what is wrong with an init_method, as far as its text shows; empty if nothing is."""
    method = init_method or ENV
    kind, _, rest = method.partition("://")
    if kind == "env" and rest:
        return "env:// takes nothing after it"
    if kind == "tcp" and not is_address(rest):
        return f"{method!r} is not tcp://HOST:PORT"
    if kind == "file" and not Path(rest).is_absolute():
        return f"{method!r} is not file:///PATH of a file that all ranks can reach"
    return ""


def meeting_file_problem(init_method: str | None) -> str:
    """Return why ranks cannot meet at the file of an init_method; empty if they can."""
    method = init_method or ENV
    if not method.startswith(FILE):
        return ""
    path = Path(method.removeprefix(FILE))
    if os.path.isdir(path):
        return f"{path} is a folder; name a file in it"
    return "" if os.path.isdir(path.parent) else f"there is no folder {path.parent}"


def meeting_address(init_method: str | None) -> str:
    """Return where the ranks meet: HOST:PORT, or file:///PATH."""
    method = init_method or ENV
    if method.startswith(FILE):
        return method
    if method.startswith(TCP):
        return method.removeprefix(TCP)
    return join_address(os.environ["MASTER_ADDR"].strip("[]"), os.environ["MASTER_PORT"])


def report_address(init_method: str | None) -> str:
    """Return the address at which rank 0's supervisor listens if the config names none.

    It is the address at which the ranks meet, if that is one of this host and others reach it.
    Raises ConfigError if there is a choice to make, or no address.
    """
    meeting = meeting_address(init_method)
    host = "" if meeting.startswith(FILE) else split_address(meeting)[0]
    if host and not is_own_loopback_name(host):
        with suppress(DistrainError):
            address = address_of(host)
            interface_of(address)
            return address
    return listening_address()


def interface_target(meeting: str, report: str) -> str:
    """Return the host, as HOST:PORT, that the ranks' interface must lead to.

    On the host where they meet, its name may mean the loopback interface, as on Debian.
    """
    if meeting.startswith(FILE) or is_loopback(split_address(meeting)[0]):
        return report.removeprefix("tcp:")
    return meeting


def report_file(meeting: str) -> Path:
    """Return the file next to file:///PATH that holds where rank 0's supervisor listens."""
    return Path(f"{meeting.removeprefix(FILE)}.distrain")
