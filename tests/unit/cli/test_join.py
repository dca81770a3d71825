"""Where a host that joins a run looks for its supervisor."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from distrain.runners.cli import join, run
from distrain.runners.cli.parser import parse
from distrain.runners.cli.signals import Signals
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.client import TOKEN_FILE_VARIABLE


def test_hosts_on_one_machine_meet_although_its_name_means_the_loopback_interface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host 0 listens at the machine's other address, as it does for hosts elsewhere."""
    token = tmp_path / "token"
    token.write_text("a word that both know")
    token.chmod(0o600)
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(token))
    monkeypatch.setattr(join, "reachable_address", {"node:4711": "10.0.0.5:4711"}.__getitem__)
    joining = Mock()
    monkeypatch.setattr(join, "JoiningProcess", joining)
    dist = {"nodes": 2, "node_rank": 1, "rendezvous": "node:4711"}
    join.join_as_configured(RunConfig.from_dict({"launcher": "torchrun", "dist": dist}), None)
    assert joining.call_args.args[1] == "tcp:10.0.0.5:4711"


def test_a_dry_run_does_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "join_as_configured", Mock())
    changes = [f"--set=dist.{key}" for key in ("nodes=2", "rendezvous=h:4711", "node_rank=1")]
    with pytest.raises(ConfigError, match="a host that joins keeps no record"):
        run.execute(parse(["run", "ddp", "--devices=cpu:1", "--dry-run", *changes]))
    join.join_as_configured.assert_not_called()


@pytest.mark.parametrize(
    ("number", "command", "code"),
    [
        (signal.SIGHUP, ["platform"], 0),  # a module that ends at once
        (signal.SIGTERM, ["timeit", "-n1", "-r1", "import time; time.sleep(60)"], 143),
    ],
)
def test_a_host_stays_in_the_run_when_its_terminal_is_closed(
    number: signal.Signals, command: list[str], code: int
) -> None:
    with Signals() as signals:
        os.kill(os.getpid(), number)
        joining = join.JoiningProcess(command, "", "", Path())
        with joining._process:
            assert joining.follow(signals) == code


def test_ctrl_c_on_a_joined_host_promises_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run may be of a script, or keep none: the command does not know its config."""
    monkeypatch.setattr(join, "send_to_supervisor", sent := Mock())
    monkeypatch.setattr(join, "read_token", Mock())
    joining = join.JoiningProcess(["platform"], "", "", Path())
    joining._event = "training"
    joining._interrupt(1)
    joining._process.communicate()
    sent.assert_called_once()
    printed = "".join(capsys.readouterr())
    assert "stopping the run on all hosts" in printed
    assert "checkpoint" not in printed
