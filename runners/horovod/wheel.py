"""The wheel of Horovod for the installed torch: from the cache, or built and cached."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from distrain.runners.horovod import source
from distrain.runners.horovod.presence import cache_folder
from distrain.runners.horovod.subprocesses import Commands
from distrain.runners.horovod.toolchain import Toolchain, has_cmake
from distrain.runners.system.scratch import scratch_folder

# Later versions may drop what Horovod's setup.py uses.
SETUPTOOLS = "setuptools>=70.1,<85"
CMAKE = "cmake>=3.13"
PIP = [sys.executable, "-P", "-m", "pip"]
_MAKE_PROGRESS = re.compile(r"\[ *(\d+)%\]")

OnStage = Callable[[str], None]


def cached_wheel(toolchain: Toolchain) -> Path | None:
    """Return the wheel that was built with this toolchain before."""
    return next(_wheel_folder(toolchain).glob("*.whl"), None)


def _wheel_folder(toolchain: Toolchain) -> Path:
    return cache_folder() / "wheels" / toolchain.key


def parse_progress(line: str) -> float | None:
    """Return the share of the build that is done, from a line of make: "[ 36%] Building …"."""
    found = _MAKE_PROGRESS.match(line)
    return int(found[1]) / 100 if found else None


def build(toolchain: Toolchain, commands: Commands, on_stage: OnStage) -> Path:
    """Build a wheel in a folder of its own, cache it, and return its path.

    Raises InstallError; then only the log is left.
    """
    with scratch_folder("horovod-", for_sockets=False) as scratch:
        environment = pip_environment(scratch)
        on_stage("downloading")
        tools = _install_tools(commands, scratch, environment)
        archive = _download(commands, scratch, with_tools(tools, environment))
        environment = toolchain.environment(_wheel_folder(toolchain)) | _pip_settings(scratch)
        on_stage("unpacking")
        folder = source.unpack(archive, scratch)
        on_stage("building")
        options = ["--no-deps", "--no-build-isolation", "--use-pep517", "--no-cache-dir", "-v"]
        command = [*PIP, "wheel", *options, "--wheel-dir", str(scratch / "wheels"), str(folder)]
        commands.run("the build of Horovod", command, scratch, with_tools(tools, environment))
        return _cache_wheel(next((scratch / "wheels").glob("*.whl")), toolchain)


def pip_environment(scratch: Path) -> dict[str, str]:
    """Return an environment in which pip keeps its temporary files in the scratch folder.

    When pip is killed, it does not remove them itself.
    """
    return {**os.environ, **_pip_settings(scratch)}


def _pip_settings(scratch: Path) -> dict[str, str]:
    return {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
    }


def with_tools(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with the tools of a folder before all others."""
    path = f"{folder / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}"
    python_path = str(folder)
    if before := environment.get("PYTHONPATH"):
        python_path += os.pathsep + before
    return {**environment, "PATH": path, "PYTHONPATH": python_path}


def _download(commands: Commands, scratch: Path, environment: dict[str, str]) -> Path:
    """Download the release; pip checks its sha256 as well, before it runs anything of it."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{source.REQUIREMENT} --hash=sha256:{source.SHA256}\n")
    options = ["--no-deps", "--no-binary", "horovod", "--no-build-isolation", "--require-hashes"]
    where = ["--dest", str(scratch), "--requirement", str(requirements)]
    command = [*PIP, "download", *options, *where]
    commands.run("the download of Horovod", command, scratch, environment)
    return next(scratch.glob("horovod-*.tar.gz"))


def _install_tools(commands: Commands, scratch: Path, environment: dict[str, str]) -> Path:
    """Install the build tools in a folder apart from the user's environment."""
    folder = scratch / "tools"
    packages = [SETUPTOOLS] if has_cmake() else [SETUPTOOLS, CMAKE]
    command = [*PIP, "install", "--target", str(folder), *packages]
    commands.run("the download of the build tools", command, scratch, environment)
    return folder


def _cache_wheel(wheel: Path, toolchain: Toolchain) -> Path:
    folder = _wheel_folder(toolchain)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{os.getpid()}"
    shutil.copyfile(wheel, draft)
    return draft.rename(folder / wheel.name)
