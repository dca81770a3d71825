"""The wheel contains all packages, presets and pages."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.wheel import FOLDERS, build, install, run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("source"))


def test_the_wheel_contains_every_package_preset_and_page(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".toml", ".tcss", ".css", ".js", ".jinja"):
                assert f"distrain/{path.relative_to(ROOT).as_posix()}" in held
    packages = {name.partition("/")[0] for name in held if ".dist-info/" not in name}
    assert packages == {"distrain", "runners"}
    assert [name for name in held if name.startswith("runners/")] == ["runners/__init__.py"]


def test_the_installed_wheel_has_its_presets(wheel: Path, tmp_path: Path) -> None:
    binaries = install(wheel, tmp_path / "environment")
    code = "import distrain.runners.config.presets as p; print(p.BUILT_IN, *p.names(), sep='\\n')"
    folder, *names = run(binaries / "python", "-c", code, cwd=tmp_path).splitlines()
    assert Path(folder).is_relative_to(tmp_path / "environment")
    listed = run(binaries / "distrain", "presets", cwd=tmp_path)
    assert {"single", "ddp", "imagenet-resnet50-amp"} <= set(names)
    assert all(name in listed for name in names)
