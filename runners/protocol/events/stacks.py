"""What a rank is doing: the stacks of its threads, and its last collectives."""

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


class GroupCollectives(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last collectives of a process group, as one of its ranks has begun them.

    `newest` is the sequence number of the last one. `pending` describes the oldest one that has
    not ended, and `pending_number` is its sequence number; there is none if it is None.
    """

    group: str
    newest: Int = 0
    pending: str = ""
    pending_number: Int | None = None


class StackRequest(Event, frozen=True, tag="stack_request"):
    """Asks for stacks: a viewer the supervisor, which asks the ranks and passes the answers on."""

    number: Int = 0


class OutsideRequest(Event, frozen=True, tag="outside_request"):
    """Asks a node agent for the stacks of ranks on its host that have not answered.

    `pids` maps these ranks to their processes, `number` is that of the StackRequest.
    """

    number: Int
    pids: dict[int, int]


class Stacks(Event, frozen=True, tag="stacks"):
    """A rank's answer to a StackRequest with the same number, main thread first.

    `step` is the last step that it has finished, which may be later than that of its last window;
    0 if unknown. `cpu_s` is the CPU time that the main thread has used, 0 if unknown. `batch_s` are
    the seconds since it has read the last batch of an evaluation, None if there was none.
    `is_from_outside`: the rank has not answered, and its stacks were read by another process of its
    host; there may be none. `is_suspended`: it was found to be suspended by a signal.
    """

    time: float
    rank: Int
    threads: list[ThreadStack]
    collectives: list[GroupCollectives] = []
    number: Int = 0
    step: Int = 0
    cpu_s: float = 0.0
    batch_s: float | None = None
    is_from_outside: bool = False
    is_suspended: bool = False
