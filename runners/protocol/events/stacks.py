"""Stacks of all threads of a rank, which its reporting thread reads when the supervisor asks."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from distrain.runners.protocol.events.base import Event, Int


class Frame(NamedTuple):
    """A call that has not returned: file, line and function."""

    file: str
    line: int
    function: str


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread is doing; the innermost call is the last of `frames`."""

    name: str
    frames: list[Frame]


class StackRequest(Event, frozen=True, tag="stack_request"):
    """Asks for stacks: a viewer the supervisor, which asks the ranks and passes the answers on."""

    number: Int = 0


class Stacks(Event, frozen=True, tag="stacks"):
    """A rank's answer to a StackRequest with the same number, main thread first."""

    time: float
    rank: Int
    threads: list[ThreadStack]
    number: Int = 0
