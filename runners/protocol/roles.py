"""Which role may send which message to the supervisor, and about which ranks."""

from __future__ import annotations

from typing import Literal, get_args

from distrain.runners.protocol.events import (
    Attempt,
    Evaluation,
    Event,
    Exited,
    Facts,
    Failure,
    Finished,
    Hello,
    Job,
    Logged,
    NodeFinished,
    NonFinite,
    Notice,
    OutsideRequest,
    Phase,
    Printed,
    RankEvaluation,
    RankFacts,
    Rendezvous,
    Requeue,
    RunEnded,
    Sampled,
    Saved,
    ScriptSettings,
    Signalled,
    StackRequest,
    Stacks,
    Stop,
    StopAt,
    Stopping,
    StopSupport,
    Welcome,
    Window,
)

Role = Literal["rank", "launcher", "node", "task", "viewer"]
ROLES: tuple[Role, ...] = get_args(Role)
SUPERVISOR: tuple[Role, ...] = ()  # what only the supervisor sends, or writes to the record
RANK: tuple[Role, ...] = ("rank",)
LAUNCHER: tuple[Role, ...] = ("launcher",)
AGENTS: tuple[Role, ...] = ("node", "task")

# Of each message: the roles that may send it after their hello.
SENDERS: dict[type[Event], tuple[Role, ...]] = {
    Hello: (),  # the first line of every connection, and no other
    Phase: RANK,
    Facts: RANK,
    Window: RANK,
    Evaluation: RANK,
    Logged: RANK,
    RankEvaluation: RANK,
    ScriptSettings: RANK,
    RankFacts: RANK,
    Saved: RANK,
    NonFinite: RANK,
    Finished: RANK,
    Stopping: RANK,
    StopSupport: RANK,
    Stacks: (*RANK, *AGENTS),
    Failure: (*RANK, *AGENTS),
    Notice: ROLES,
    Exited: (*LAUNCHER, *AGENTS),
    Signalled: (*LAUNCHER, *AGENTS),
    Job: LAUNCHER,
    Rendezvous: AGENTS,
    Sampled: AGENTS,
    Printed: AGENTS,
    NodeFinished: AGENTS,
    Stop: ("viewer", *LAUNCHER, *AGENTS),
    StackRequest: ("viewer",),
    StopAt: SUPERVISOR,
    Welcome: SUPERVISOR,
    RunEnded: SUPERVISOR,
    Requeue: SUPERVISOR,
    OutsideRequest: SUPERVISOR,
    Attempt: SUPERVISOR,
}


def refusal(hello: Hello, event: Event) -> str:
    """Return why a peer that has sent this hello may not send an event; empty where it may.

    Which ranks belong to a node depends on the run: the supervisor's `Membership` knows.
    """
    if hello.role not in SENDERS[type(event)]:
        return f"a {hello.role} may not send {event.__struct_config__.tag}"
    rank = getattr(event, "rank", None)
    if rank is None:
        return ""
    if hello.role == "viewer":
        return f"a viewer may not report for rank {rank}"
    if hello.role in ("rank", "task") and rank != hello.rank:
        return f"rank {hello.rank} may not report for rank {rank}"
    return ""
