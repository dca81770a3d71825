"""A wheel of Horovod for the torch that is installed: from the cache, or built and put there."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runners.horovod import source
from runners.horovod.commands import Commands
from runners.horovod.presence import cache
from runners.horovod.toolchain import Toolchain, has_cmake

# Other versions may drop what Horovod's setup.py needs of it.
BUILDER = "setuptools>=70.1,<85"
CMAKE = "cmake>=3.13"
PIP = [sys.executable, "-P", "-m", "pip"]
_SHARE = re.compile(r"\[ *(\d+)%\]")

Stage = Callable[[str], None]


def cached(toolchain: Toolchain) -> Path | None:
    """The wheel that was built for all this before."""
    return next(_shelf(toolchain).glob("*.whl"), None)


def _shelf(toolchain: Toolchain) -> Path:
    return cache() / "wheels" / toolchain.key


def share_of(line: str) -> float | None:
    """How much of it make has done, where it says so: "[ 36%] Building …"."""
    found = _SHARE.match(line)
    return int(found[1]) / 100 if found else None


def build(toolchain: Toolchain, commands: Commands, stage: Stage) -> Path:
    """Build a wheel in a folder that nobody else has, and put it into the cache whole.

    Raises InstallError; then nothing of it is left but the log.
    """
    with scratch_folder() as scratch:
        plain = plain_environment(scratch)
        stage("downloading")
        tools = _tools(commands, scratch, plain)
        archive = _download(commands, scratch, found_first(tools, plain))
        wanted = toolchain.environment(_shelf(toolchain))
        environment = found_first(tools, {**wanted, **quiet(scratch)})
        stage("unpacking")
        folder = source.unpack(archive, scratch)
        stage("building")
        where = ["--no-deps", "--no-build-isolation", "--use-pep517", "--no-cache-dir", "-v"]
        command = [*PIP, "wheel", *where, "--wheel-dir", str(scratch / "wheels"), str(folder)]
        commands.run("the build of Horovod", command, scratch, environment)
        return _into_cache(next((scratch / "wheels").glob("*.whl")), toolchain)


def plain_environment(scratch: Path) -> dict[str, str]:
    """Of pip, which leaves what it had begun behind when it is ended: in the folder that goes."""
    return {**os.environ, **quiet(scratch)}


def quiet(scratch: Path) -> dict[str, str]:
    """What makes pip ask nothing, say all at once and leave nothing elsewhere."""
    return {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
    }


def found_first(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """The environment, in which the tools of a folder go before all others."""
    paths = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), environment.get("PYTHONPATH")])),
    }
    return {**environment, **paths}


def _download(commands: Commands, scratch: Path, environment: dict[str, str]) -> Path:
    """pip checks the sha256 as well, before it runs anything of it."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{source.REQUIREMENT} --hash=sha256:{source.SHA256}\n")
    how = ["--no-deps", "--no-binary", "horovod", "--no-build-isolation", "--require-hashes"]
    command = [*PIP, "download", *how, "--dest", str(scratch), "--requirement", str(wanted)]
    commands.run("the download of Horovod", command, scratch, environment)
    return next(scratch.glob("horovod-*.tar.gz"))


def _tools(commands: Commands, scratch: Path, environment: dict[str, str]) -> Path:
    """What is needed to build alone, in a folder out of the way of the person's environment."""
    folder = scratch / "tools"
    wanted = [BUILDER] if has_cmake() else [BUILDER, CMAKE]
    command = [*PIP, "install", "--target", str(folder), *wanted]
    commands.run("the download of what builds Horovod", command, scratch, environment)
    return folder


def _into_cache(wheel: Path, toolchain: Toolchain) -> Path:
    folder = _shelf(toolchain)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{os.getpid()}"
    shutil.copyfile(wheel, draft)
    return draft.rename(folder / wheel.name)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="distrain-horovod-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
