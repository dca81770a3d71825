"""Target `decoder`: the bytes of a connection, as the supervisor's server reads them.

An input is a byte of options and then the bytes that a peer sends, in one piece or in several.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, get_args

import msgspec

from distrain.runners import formatting
from distrain.runners.protocol.events import Event, Hello, Message, Notice, decode, encode
from distrain.runners.protocol.roles import ROLES, SENDERS
from distrain.runners.supervision import connection as server
from distrain.runners.supervision.connection import Connection
from tests.fuzz.mutations import HOSTILE_TEXTS, changed

MAX_LENGTH = 1024
MUTATES_BYTES = True  # libFuzzer may change any byte
# The limits are lowered so that short inputs exceed them.
server.MAX_LINE_BYTES = 700
server.MAX_HELLO_BYTES = 300
TOKEN = "secret"
OVER_TCP, RAISES = 1, 2  # options; from IN_PIECES on they are the size of pieces
IN_PIECES = 192
DICTIONARY = sorted(
    {f'"{kind.__struct_config__.tag}"' for kind in SENDERS}
    | {f'"{field.encode_name}":' for kind in SENDERS for field in msgspec.structs.fields(kind)}
    | {f'"{role}"' for role in ROLES}
    | {'{"type":"hello","role":"', '"secret"', "null", "true", "[]", "{}", "\\n", "1e308"}
)


class _Transport(asyncio.Transport):
    """The end of a connection that only keeps whether it is still open."""

    peer, _ = socket.socketpair(socket.AF_UNIX)

    def __init__(self) -> None:
        super().__init__()
        self.is_open = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.peer

    def abort(self) -> None:
        self.is_open = False

    close = abort

    def is_closing(self) -> bool:
        return not self.is_open

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        decode(bytes(data).rstrip(b"\n"))


class _Timer:
    def cancel(self) -> None: ...


class _Loop:
    """What a connection needs of an event loop; a real one would keep a timer per input."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Timer:
        return _Timer()


class _Log:
    """Stands for supervisor.log, which people print on terminals."""

    def write(self, text: str) -> int:
        assert not formatting.has_control_characters(text.replace("\n", "")), ascii(text)
        return len(text)

    def flush(self) -> None: ...


class _Listener:
    def __init__(self, raises: bool) -> None:
        self.events: list[Event] = []
        self.problem: AssertionError | None = None
        self._raises = raises

    def received(self, connection: Connection, event: Event) -> None:
        try:  # what is raised here only rejects the message
            self._check(event)
        except AssertionError as error:
            self.problem = self.problem or error
        self.events.append(event)
        if self._raises and len(self.events) > 2 and not _is_skipped_notice(event):
            raise RuntimeError(HOSTILE_TEXTS[2])

    def _check(self, event: Event) -> None:
        if isinstance(event, Hello):
            assert not self.events, "a second hello"
            self.hello = event
        elif not _is_skipped_notice(event):
            _require_allowed(self.hello, event)
        assert decode(encode(event)) == event, "it changes when it is encoded"

    def disconnected(self, connection: Connection) -> None:
        assert self.events, "disconnected before it was connected"


def _is_skipped_notice(event: Event) -> bool:
    return isinstance(event, Notice) and event.text.startswith("a message of rank ")


def _require_allowed(hello: Hello, event: Event) -> None:
    assert hello.role in SENDERS[type(event)], f"a {hello.role} has sent {type(event).__name__}"
    rank = getattr(event, "rank", None)
    if hello.role in ("rank", "task"):
        assert rank in (None, hello.rank), "it reports for another rank"
    assert not (hello.role == "viewer" and rank is not None), "a viewer reports for a rank"


def prepare() -> None:
    """Prepare this process: connections ask for the running loop and write to stderr."""
    asyncio._set_running_loop(_Loop())  # type: ignore[arg-type]
    sys.stderr = _Log()  # type: ignore[assignment]
    server.traceback.print_exc = lambda: None  # slow, and nothing of a peer


def close() -> None: ...


def check(data: bytes) -> None:
    """Send the bytes in one piece, and perhaps in small ones too: the events are the same."""
    options, sent = data[0] if data else 0, data[1:]
    whole, is_open = _received(sent, options, len(sent) or 1)
    if options >= IN_PIECES:
        pieces = _received(sent, options, 1 + 3 * (options - IN_PIECES))
        assert [*map(_untimed, whole)] == [*map(_untimed, pieces[0])], "pieces change the events"
        assert is_open == pieces[1]


def _received(sent: bytes, options: int, size: int) -> tuple[list[Event], bool]:
    """Return what the listener receives in pieces of this size, and whether it stays connected."""
    listener = _Listener(bool(options & RAISES))
    transport = _Transport()
    ungreeted: dict[Connection, None] = {}
    connection = Connection(listener, TOKEN if options & OVER_TCP else "", ungreeted)
    connection.connection_made(transport)
    for start in range(0, len(sent), size):
        piece = sent[start : start + size]
        connection.get_buffer(-1)[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        if not transport.is_open:
            break
        assert len(connection._partial_line) <= server.MAX_LINE_BYTES, "it keeps a long line"
    else:
        connection.send(msgspec.structs.replace(listener.events[0])) if listener.events else None
    connection.connection_lost(None)
    assert not ungreeted
    if listener.problem:
        raise listener.problem
    return listener.events, transport.is_open


def _untimed(event: Event) -> Event:
    return msgspec.structs.replace(event, time=0.0) if _is_skipped_notice(event) else event


# --- inputs ---------------------------------------------------------------------------------------


def _examples() -> Iterator[dict[str, Any]]:
    """Yield a message of each type with all its fields."""
    for kind in SENDERS:
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        yield {
            "type": kind.__struct_config__.tag,
            **{name: _example(field.type) for name, field in fields.items()},
        }


def _example(kind: Any) -> Any:
    schema = msgspec.json.schema(kind)
    return _of_schema(schema, schema.get("$defs", {}))


def _of_schema(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _of_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema:
        return schema["enum"][-1]
    if "anyOf" in schema:
        return _of_schema(schema["anyOf"][0], definitions)
    match schema.get("type"):
        case "object":
            if "properties" in schema:
                named = schema["properties"].items()
                return {name: _of_schema(inner, definitions) for name, inner in named}
            inner = schema.get("additionalProperties")
            inner = inner if isinstance(inner, dict) else {}
            key = "7" if "propertyNames" in schema else "name"
            return {key: _of_schema(inner, definitions)}
        case "array":
            parts = schema.get("prefixItems") or [schema.get("items") or {}]
            return [_of_schema(part, definitions) for part in parts]
        case "integer":
            return 0
        case "number":
            return 0.5
        case "boolean":
            return True
        case "string":
            return "text"
    return None


EXAMPLES = [*_examples()]
assert len(EXAMPLES) == len(get_args(Message))
HELLOS = [{"type": "hello", "role": role, "token": TOKEN} for role in ROLES]


def seeds() -> list[bytes]:
    """Return a conversation of each role with every message."""
    return [
        _joined(number % 4 + IN_PIECES * (number % 2), [hello, example, example])
        for number, hello in enumerate(HELLOS)
        for example in EXAMPLES
    ]


def _joined(options: int, messages: list[Any]) -> bytes:
    lines = [_line(message) for message in messages]
    return bytes([options]) + b"\n".join(lines) + b"\n"


def _line(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def mutate(data: bytes, random: Random) -> bytes:
    """Return the input with a line that is added, removed, moved or changed as JSON."""
    options, lines = data[:1] or b"\0", data[1:].split(b"\n")
    chance = random.random()
    index = random.randrange(len(lines))
    if chance < 0.1:
        options = bytes([random.randrange(256)])
    elif chance < 0.3:
        lines.insert(max(index, 1), _line(random.choice(EXAMPLES)))
    elif chance < 0.4:
        lines[0] = _line(random.choice(HELLOS))
    elif chance < 0.5:
        del lines[index]
    elif chance < 0.55:
        lines.insert(index, lines[random.randrange(len(lines))])
    else:
        try:
            lines[index] = _line(changed(json.loads(lines[index]), random))
        except (ValueError, RecursionError):
            lines[index] = _line(changed(json.loads(_line(random.choice(EXAMPLES))), random))
    return options + b"\n".join(lines)
