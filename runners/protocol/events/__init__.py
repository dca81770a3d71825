"""The messages of the protocol, version 1, between supervisor, ranks, launchers, nodes and viewers.

One message is one line of JSON with its `type` first; `docs/protocol.md` describes them for other
languages. Times are in Unix seconds, durations in seconds, sizes in bytes. Names on the wire never
change; where a field has a better name in Python, `msgspec.field(name=...)` gives that of the wire.
"""

from __future__ import annotations

from typing import Any

import msgspec

from distrain.runners.protocol.events.base import NEVER, VERSION, Event, Int
from distrain.runners.protocol.events.hosts import (
    Job,
    NodeFinished,
    Printed,
    Rendezvous,
    Requeue,
    RunEnded,
    Welcome,
)
from distrain.runners.protocol.events.processes import (
    Attempt,
    Exited,
    Failure,
    Finished,
    Hello,
    Notice,
    Signalled,
)
from distrain.runners.protocol.events.samples import (
    GPUS_PER_HOST,
    GpuSample,
    HostSample,
    RankSample,
    Sampled,
)
from distrain.runners.protocol.events.scripts import (
    Logged,
    LoggedStats,
    RankEvaluation,
    RankFacts,
    ScriptSettings,
)
from distrain.runners.protocol.events.stacks import (
    Frame,
    GroupCollectives,
    OutsideRequest,
    StackRequest,
    Stacks,
    ThreadStack,
)
from distrain.runners.protocol.events.stops import Stop, StopAt, Stopping, StopSupport
from distrain.runners.protocol.events.training import (
    ENDLESS,
    OTHER,
    OVERLAPPING,
    PHASES,
    SAMPLE,
    WINDOW_SUMS,
    Evaluation,
    Facts,
    Metric,
    NonFinite,
    Phase,
    Saved,
    Window,
)

__all__ = [
    "ENDLESS",
    "GPUS_PER_HOST",
    "NEVER",
    "OTHER",
    "OVERLAPPING",
    "PHASES",
    "SAMPLE",
    "VERSION",
    "WINDOW_SUMS",
    "Attempt",
    "Evaluation",
    "Event",
    "Exited",
    "Facts",
    "Failure",
    "Finished",
    "Frame",
    "GpuSample",
    "GroupCollectives",
    "Hello",
    "HostSample",
    "Int",
    "Job",
    "Logged",
    "LoggedStats",
    "Message",
    "Metric",
    "NodeFinished",
    "NonFinite",
    "Notice",
    "OutsideRequest",
    "Phase",
    "Printed",
    "RankEvaluation",
    "RankFacts",
    "RankSample",
    "Rendezvous",
    "Requeue",
    "RunEnded",
    "Sampled",
    "Saved",
    "ScriptSettings",
    "Signalled",
    "StackRequest",
    "Stacks",
    "Stop",
    "StopAt",
    "StopSupport",
    "Stopping",
    "ThreadStack",
    "Welcome",
    "Window",
    "as_dict",
    "decode",
    "encode",
]

Message = (
    Hello
    | Phase
    | Facts
    | Window
    | Logged
    | RankEvaluation
    | ScriptSettings
    | RankFacts
    | Evaluation
    | Saved
    | Notice
    | NonFinite
    | Failure
    | Finished
    | Exited
    | Signalled
    | Job
    | Requeue
    | Rendezvous
    | Welcome
    | Printed
    | NodeFinished
    | RunEnded
    | Attempt
    | Sampled
    | Stop
    | Stopping
    | StopSupport
    | StopAt
    | StackRequest
    | OutsideRequest
    | Stacks
)
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(event: Event) -> bytes:
    """Return a message as one line with its newline. NaN and infinities become null."""
    return _encoder.encode(event) + b"\n"


def decode(line: bytes | bytearray | memoryview) -> Message:
    """Return the message of a line; raises msgspec.ValidationError or DecodeError."""
    return _decoder.decode(line)


def as_dict(event: msgspec.Struct) -> dict[str, Any]:
    """Return all fields of a message or sample as plain data, for exports and --json.

    They have the names of the wire.
    """
    values = {
        field.encode_name: msgspec.to_builtins(getattr(event, field.name))
        for field in msgspec.structs.fields(event)
    }
    tag = event.__struct_config__.tag
    return {"type": tag, **values} if tag else values
