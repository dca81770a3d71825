"""The requests that reach a job whose nodes cannot be reached, through the record's folder."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from distrain.runners.protocol.events import Stop
from distrain.runners.supervision import relay


def test_a_request_that_cannot_be_read_now_does_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a file may be stale that another host has just replaced."""

    def stale(path: Path) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    (tmp_path / relay.FOLDER).mkdir()
    relay.request_stop(tmp_path, Stop(now=True))
    request = tmp_path / relay.FOLDER / relay.STOP_REQUEST
    coordinator: Any = SimpleNamespace(control=Mock())
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", stale)
        relay._handle_request(request, coordinator)
    coordinator.control.stop.assert_not_called()
    relay._handle_request(request, coordinator)
    coordinator.control.stop.assert_called_once_with(now=True, restart=False)
