"""A stop: the supervisor requests it, every rank answers, all leave at the same step."""

from __future__ import annotations

import msgspec

from distrain.runners.protocol.events.base import Event, Int


class Stop(Event, frozen=True, tag="stop"):
    """Stop the run: from a viewer to the supervisor, from the supervisor to the ranks.

    `now` skips the checkpoint. `restart` (on the wire: `again`) comes from a launcher that will
    restart the ranks, which then continue.
    """

    now: bool = False
    restart: bool = msgspec.field(default=False, name="again")


class Stopping(Event, frozen=True, tag="stopping"):
    """A rank's answer: it will not go beyond `step` + 1 before it receives a StopAt."""

    rank: Int
    step: Int


class StopSupport(Event, frozen=True, tag="stop_support"):
    """From a rank of a script: its program asks after each step whether to stop."""

    rank: Int


class StopAt(Event, frozen=True, tag="stop_at"):
    """To every rank: leave the loop after `step`, which no rank has passed.

    NEVER takes a stop back that not all ranks have answered in time.
    """

    step: Int
    save: bool = True
