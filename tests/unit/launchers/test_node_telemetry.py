"""Samples that a node agent takes of its host."""

from __future__ import annotations

import errno
import threading

import pytest

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.launchers import node_telemetry
from distrain.runners.system import telemetry
from distrain.runners.system.devices import Device
from distrain.runners.system.rank_identity import AgentIdentity


def test_a_node_samples_its_host_and_ends_although_its_driver_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_asked, answer, sent = threading.Event(), threading.Event(), threading.Event()

    class Sampler:
        def __init__(self, uuids: list[str]) -> None:
            pass

        def sample(self) -> list[object]:
            is_asked.set()
            answer.wait()
            return []

    monkeypatch.setattr(telemetry, "GpuSampler", Sampler)
    monkeypatch.setattr(node_telemetry, "LAST_SAMPLE_S", 0.01)
    plan = plan_here(RunConfig(), [Device(kind="cpu", index=0)])
    identity = AgentIdentity(node=0, local_rank=0)
    with node_telemetry.sampling(lambda event: sent.set(), identity, plan, every_s=0.01):
        is_asked.wait()
        sent.clear()
        sent.wait()
    answer.set()


def test_a_node_is_sampled_again_after_a_sample_that_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, is_sampled = 0, threading.Event()

    class Sampler:
        def __init__(self, uuids: list[str]) -> None:
            pass

        def sample(self) -> list[object]:
            nonlocal calls
            calls += 1
            if calls < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            is_sampled.set()
            return []

    monkeypatch.setattr(telemetry, "GpuSampler", Sampler)
    plan = plan_here(RunConfig(), [Device(kind="cpu", index=0)])
    identity = AgentIdentity(node=0, local_rank=0)
    with node_telemetry.sampling(lambda event: None, identity, plan, every_s=0.01):
        assert is_sampled.wait(60)
    assert capsys.readouterr().err.count("OSError: [Errno ") == 1
