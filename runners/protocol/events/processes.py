"""How processes connect, fail and end, and notices to people."""

from __future__ import annotations

from typing import Literal

import msgspec

from distrain.runners.protocol.events.base import VERSION, Event, Int


class Hello(Event, frozen=True, tag="hello"):
    """The first line of every connection. `token` is required on TCP only.

    The role `node` is an agent that starts all ranks of a host, `task` one that starts one rank.
    `node` is the host's number (-1: the supervisor chooses). `attempt` counts how often Slurm has
    requeued the job, `restart` how often torchrun has restarted the ranks of the host. `joined`:
    distrain has not started this process, which joins by itself and reports its own end; it takes
    the place of the program that has started it.
    """

    version: Int = VERSION
    role: Literal["rank", "launcher", "node", "task", "viewer"] = "rank"
    token: str = ""
    rank: Int = 0
    local_rank: Int = 0
    world_size: Int = 1
    pid: Int = 0
    host: str = ""
    device: str = ""
    device_uuid: str = ""
    node: Int = -1
    attempt: Int = 0
    restart: Int = 0
    joined: bool = False


class Notice(Event, frozen=True, tag="notice"):
    """A sentence that a person should read."""

    time: float
    text: str
    level: Literal["info", "warning"] = "warning"
    rank: Int | None = None


class Failure(Event, frozen=True, tag="failure"):
    """A rank ends with an exception.

    `usage` marks an error of the user's configuration. `secondary` (on the wire: `collateral`)
    marks an error that looks like a consequence of another rank's failure, e.g. a broken or
    timed-out connection.
    """

    time: float
    rank: Int
    error: str
    message: str
    traceback: str = ""
    step: Int = 0
    usage: bool = False
    secondary: bool = msgspec.field(default=False, name="collateral")


class Finished(Event, frozen=True, tag="finished"):
    """A rank has left the training loop without an error, after `step` steps.

    `stopped` on request, or for a `reason` of its own; without either it has made all steps.
    """

    time: float
    rank: Int
    step: Int
    stopped: bool = False
    reason: str = ""


class Exited(Event, frozen=True, tag="exited"):
    """The exit code of a rank process, reported by its parent; a negative code is a signal."""

    time: float
    rank: Int
    pid: Int
    code: Int


class Signalled(Event, frozen=True, tag="signalled"):
    """The launcher or a node agent has received a signal to end, by its number, and ends its
    ranks.
    """

    time: float
    signal: Int


class Attempt(Event, frozen=True, tag="attempt"):
    """The ranks were restarted and continue after `step`; later steps are discarded.

    Written by the supervisor. `number` counts restarts from 1; `lost` is the last step that was
    done before the restart. With `counts_from_zero`, the ranks are those of a script, whose steps
    are counted from 0 again. It may log steps of its own, so each of its curves is kept up to the
    first step that is logged after this.
    """

    time: float
    number: Int
    step: Int
    lost: Int
    reason: str = ""
    counts_from_zero: bool = False

    @property
    def last_kept(self) -> int:
        """The last step that is not discarded. Ranks that begin again repeat step 0 too, which a
        script without counted steps never leaves.
        """
        return self.step or -1
