"""What `join` refuses before it has spoken to anybody; with hosts to join it is in tests/hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Distrain

PLACE = "127.0.0.1:9"
AS_CONFIGURED = ("run", "ddp", "--set=dist.nodes=2", "--set=dist.node_rank=1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((PLACE,), "required: --token-file"),
        ((PLACE, "--token-file", "none"), "the token file none cannot be read: No such file"),
        ((PLACE, "--token-file", "empty"), "the token file empty is empty"),
        (("127.0.0.1", "--token-file", "token"), "is HOST:PORT as the first host tells it"),
        (("127.0.0.1:65536", "--token-file", "token"), "is HOST:PORT as the first host tells it"),
        ((PLACE, "--token-file", "token", "--node-rank", "0"), "count from 1"),
        ((PLACE, "--token-file", "token", "--node-rank=-3"), "count from 1"),
        ((PLACE, "--token-file", "token", "--devices", "cpu:x"), "devices: "),
    ],
)
def test_a_wrong_use_is_one_sentence(
    words: tuple[str, ...], sentence: str, distrain: Distrain, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("known")
    (tmp_path / "empty").write_text("\n")
    done = distrain("join", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_host_that_joins_by_its_config_needs_a_place_and_a_token(distrain: Distrain) -> None:
    without = distrain(*AS_CONFIGURED)
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "dist.rendezvous" in without.stderr
    without = distrain(*AS_CONFIGURED, f"--set=dist.rendezvous={PLACE}")
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
    assert "set DISTRAIN_TOKEN_FILE" in without.stderr


def test_a_name_that_nobody_knows_is_told(distrain: Distrain, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("known")
    done = distrain("join", "no-such-host.invalid:9", "--token-file", "token")
    assert done.returncode == 1
    assert done.stderr.startswith("distrain: no address is found for the name no-such-host.invalid")
