"""How a program has asked to exit."""

from __future__ import annotations

import builtins
import sys

import pytest

from distrain.runners.instrumentation.requested_exit import RequestedExit


def test_many_runs_of_a_process_take_the_place_of_sys_exit_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "exit", sys.exit)  # restored at the end
    for name in ("exit", "quit"):
        monkeypatch.setattr(builtins, name, getattr(builtins, name))
    for _ in range(2 * sys.getrecursionlimit()):
        requested = RequestedExit(lambda: 0)
    with pytest.raises(SystemExit, match="3"):
        sys.exit(3)
    assert isinstance(requested.error, SystemExit)
    assert requested.error.code == 3
