"""Which role may send which message: the table of the code is that of the page."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from distrain.runners.protocol.events import Event, Exited, Hello, Message, Notice
from distrain.runners.protocol.roles import ROLES, SENDERS, Role, refusal
from tests.support.records import make_window
from tests.unit.protocol.test_events import EVENTS

PAGE = Path(__file__).parents[3] / "docs/protocol.md"


def may_send(role: Role) -> set[str]:
    """Return the messages that the page allows a role."""
    _, _, section = PAGE.read_text("utf-8").partition("\n## Roles\n")
    section, _, _ = section.partition("\n## ")
    (row,) = re.findall(rf"^\| `{role}` \| (.*?) \|", section, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row))


def test_each_role_of_a_hello_has_its_messages() -> None:
    assert get_args(get_type_hints(Hello)["role"]) == ROLES
    assert SENDERS.keys() == set(get_args(Message))


@pytest.mark.parametrize("role", ROLES)
def test_the_page_allows_what_the_code_allows(role: Role) -> None:
    tags = {str(kind.__struct_config__.tag) for kind in SENDERS if role in SENDERS[kind]}
    assert tags == may_send(role)


@pytest.mark.parametrize(
    ("role", "event"),
    product(ROLES, [*EVENTS, make_window()]),
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_a_role_may_send_its_own_messages_only(role: Role, event: Event) -> None:
    hello = Hello(role=role, rank=getattr(event, "rank", None) or 0)
    allowed = event.__struct_config__.tag in may_send(role)
    assert (refusal(hello, event) == "") == allowed


@pytest.mark.parametrize(
    ("hello", "event", "sentence"),
    [
        (Hello(role="rank", rank=1), make_window(rank=0), "rank 1 may not report for rank 0"),
        (
            Hello(role="task", rank=1),
            Exited(time=1.0, rank=0, pid=7, code=1),
            "rank 1 may not report for rank 0",
        ),
        (
            Hello(role="viewer"),
            Notice(time=1.0, rank=0, text="all is well"),
            "a viewer may not report for rank 0",
        ),
        (Hello(role="viewer"), make_window(), "a viewer may not send window"),
    ],
)
def test_nobody_reports_for_another_rank(hello: Hello, event: Event, sentence: str) -> None:
    assert refusal(hello, event) == sentence
