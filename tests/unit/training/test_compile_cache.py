"""torch.compile executes what is in its cache, so nobody else may write to that."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from distrain.runners.system.private_folder import is_private
from distrain.runners.training.compile_cache import use_private_cache


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "me")
    return tmp_path / "torchinductor_me"


@pytest.mark.parametrize("mode", [None, 0o755, 0o777])
def test_the_default_of_torch_is_used_and_closed_to_others(default: Path, mode: int | None) -> None:
    if mode is not None:
        default.mkdir()
        default.chmod(mode)
    use_private_cache()
    assert is_private(default)
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(default.parent)


@pytest.mark.parametrize("kind", ["link", "of another user"])
def test_a_folder_that_somebody_else_has_put_there_is_not_used(
    default: Path, kind: str, tmp_path: Path
) -> None:
    if kind == "link":
        (tmp_path / "theirs").mkdir()
        default.symlink_to("theirs")
    elif os.getuid() == 0:
        default.mkdir()
        os.chown(default, 4711, 4711)
    else:
        pytest.skip("only root can give a folder to another user")
    use_private_cache()
    assert os.environ["TMPDIR"] == tempfile.gettempdir() != str(default.parent)
    assert is_private(Path(tempfile.gettempdir()))
