"""What `join` refuses before it connects; tests/cluster joins hosts."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain

ADDRESS = "127.0.0.1:9"
JOIN_AT_ONCE = """
from distrain.runners.launchers import joined_host
joined_host.ANSWER_S = 0.2
raise SystemExit(joined_host.main())
"""
RUN_ON_HOST_1 = ("run", "ddp", "--set=dist.nodes=2", "--set=dist.node_rank=1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((ADDRESS,), "required: --token-file"),
        ((ADDRESS, "--token-file", "none"), "the token file none cannot be read: No such file"),
        ((ADDRESS, "--token-file", "empty"), "the token file empty is empty"),
        ((ADDRESS, "--token-file", "/dev/zero"), "has more than 4,096 characters"),
        (("127.0.0.1", "--token-file", "token"), "must be HOST:PORT as the first host prints it"),
        (
            ("127.0.0.1:65536", "--token-file", "token"),
            "must be HOST:PORT as the first host prints it",
        ),
        ((ADDRESS, "--token-file", "token", "--node-rank", "0"), "number other hosts from 1"),
        ((ADDRESS, "--token-file", "token", "--node-rank=-3"), "number other hosts from 1"),
        ((ADDRESS, "--token-file", "token", "--devices", "cpu:x"), "devices: "),
    ],
)
def test_a_usage_error_is_one_sentence(
    words: tuple[str, ...], sentence: str, distrain: Distrain, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("known")
    (tmp_path / "empty").write_text("\n")
    done = distrain("join", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_joining_as_configured_needs_an_address_and_a_token(distrain: Distrain) -> None:
    without = distrain(*RUN_ON_HOST_1)
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "dist.rendezvous" in without.stderr
    without = distrain(*RUN_ON_HOST_1, f"--set=dist.rendezvous={ADDRESS}")
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "set DISTRAIN_TOKEN_FILE" in without.stderr


def test_an_unknown_host_name_is_reported(distrain: Distrain, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("known")
    done = distrain("join", "no-such-host.invalid:9", "--token-file", "token")
    assert done.returncode == 1
    assert done.stderr.startswith("distrain: no address is found for the name no-such-host.invalid")


def test_a_first_host_that_never_answers_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("known")
    monkeypatch.setenv("DISTRAIN_TOKEN_FILE", str(tmp_path / "token"))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as a supervisor that is suspended
        monkeypatch.setenv("DISTRAIN_SOCKET", f"tcp:127.0.0.1:{silent.getsockname()[1]}")
        words = [sys.executable, "-c", JOIN_AT_ONCE, "-1", ""]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")
    assert "failed\tthe first host accepts the connection and does not answer" in done.stdout
