"""What a run's handle does about a supervisor that it cannot use."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from distrain import Record, Run
from distrain.runners.errors import DistrainError
from distrain.runners.protocol import client
from distrain.runners.system.processes import process_identity
from tests.support.records import RunBuilder


@pytest.mark.parametrize("act", [Run.stop, Run.read_stacks])
def test_a_live_run_of_another_user_is_named_as_such(
    act: Callable[[Run], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its supervisor is not silent: nobody should kill it."""
    monkeypatch.chdir(tmp_path)  # because paths of sockets are short
    run = RunBuilder(tmp_path / "runs")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        listening.listen()
        run.writer.set_state(socket="unix:socket", **process_identity())
        monkeypatch.setattr(client, "is_same_user", lambda connection: False)
        with pytest.raises(DistrainError, match="belongs to another user") as refused:
            act(Run(Record(run.dir)))
    assert "kill" not in str(refused.value)
