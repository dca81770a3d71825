"""Messages of a scheduler's job, and of nodes: other hosts of a run."""

from __future__ import annotations

import msgspec

from distrain.runners.protocol.events.base import Event, Int


class Job(Event, frozen=True, tag="job"):
    """The state of the scheduler's job; sent when any of it has changed.

    `state` and `reason` are Slurm's (PENDING, Resources). `jobs_ahead` (on the wire: `place`)
    counts the jobs of its partition that are ahead of it in the queue. `starts` and `ends` are
    its expected start and its time limit, in Unix seconds. `restarts` counts how often it was
    requeued. `ended` is a sentence about how it ended, unless its launcher ended it.
    """

    time: float
    id: str
    state: str
    reason: str = ""
    nodes: list[str] = []
    jobs_ahead: Int | None = msgspec.field(default=None, name="place")
    starts: float | None = None
    ends: float | None = None
    restarts: Int = 0
    ended: str = ""


class Requeue(Event, frozen=True, tag="requeue"):
    """To such a launcher: requeue the job, because some of its nodes do not respond."""


class Rendezvous(Event, frozen=True, tag="meeting"):
    """From node 0: the HOST:PORT at which the ranks of all nodes meet.

    That is a TCPStore, or Horovod's rendezvous server. On the wire the field is `place`.
    """

    address: str = msgspec.field(name="place")


class Welcome(Event, frozen=True, tag="welcome"):
    """The supervisor's answer to a node, once it can start its ranks.

    `config` is TOML, `plan` JSON. `rendezvous` (on the wire: `meeting`) is the address of a
    Rendezvous. `versions` are those of the supervisor's host, which other hosts should have too.
    `previous` is the id of the run whose files a script continues from.
    """

    run_id: str
    node: Int
    config: str
    plan: str
    rendezvous: str = msgspec.field(default="", name="meeting")
    versions: dict[str, str] = {}
    previous: str = ""


class Printed(Event, frozen=True, tag="printed"):
    """Output of a rank, from a node that does not share the record's folder."""

    rank: Int
    text: str


class NodeFinished(Event, frozen=True, tag="over"):
    """A node's ranks have ended, or it cannot take part; all messages about that were sent."""


class RunEnded(Event, frozen=True, tag="ended"):
    """To nodes, as the last message: how the run has ended."""

    status: str
    reason: str
