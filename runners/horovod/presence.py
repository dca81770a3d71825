"""Whether Horovod can be used here, and what it can do.

Only importing it tells for sure, which takes seconds and is done by a subprocess. Its answer is
kept for as long as what it depends on stays the same, since the app asks at every change of a form.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from runners import words
from runners.devices import Device, torch_build

FIX = "distrain doctor --fix horovod"
IMPORT_S = 120.0
_ANEW = f"`pip uninstall horovod`, then `{FIX}`, builds one"
DOUBT_S = 60.0  # a library may come that was missing, which no key tells

_MARK = "Horovod has: "  # MPI and others print as well, some of them at the end
_IMPORT = f"""
import json
MARK = {_MARK!r}
import horovod.torch as hvd
if not hasattr(hvd, "init"):
    raise SystemExit("it is built without PyTorch")
names = ("gloo", "mpi", "nccl", "cuda")
built = dict((name, bool(getattr(hvd, name + "_built")())) for name in names)
print()
print(MARK + json.dumps(built))
"""


class Presence(msgspec.Struct, frozen=True):
    """`why` Horovod cannot be used, empty where it can, and how to `mend` that.

    `gloo`, `mpi`, `nccl` and `cuda` are what it is built with, known only of one that works.
    """

    why: str = ""
    mend: str = ""
    version: str = ""
    gloo: bool = False
    mpi: bool = False
    nccl: bool = False
    cuda: bool = False

    @property
    def problem(self) -> str:
        """Both as one sentence; empty where there is none."""
        return "; ".join(text for text in (self.why, self.mend) if text)

    @property
    def transports(self) -> list[str]:
        """What can carry data between ranks: of "nccl", "gloo" and "mpi"."""
        return [name for name in ("nccl", "gloo", "mpi") if getattr(self, name)]


def problem() -> str:
    """Why Horovod cannot be used here, with the command that mends it; empty where it can."""
    return presence().problem


def problems(via: str, devices: Sequence[Device]) -> list[tuple[str, str]]:
    """Keys of a config with why it cannot start ranks by that command, on those devices."""
    found = presence()
    if found.why:
        return [("strategy", found.problem)]
    lacks = []
    if via == "mpirun" and not found.mpi:
        lacks.append(("horovod.via", f"this Horovod is built without MPI; {_ANEW} where MPI is"))
    if via != "mpirun" and not found.gloo:
        lacks.append(("horovod.via", f"this Horovod is built without Gloo; use mpirun, or {_ANEW}"))
    on_gpus = [device.uuid for device in devices if device.kind == "cuda"]
    if on_gpus and not found.cuda:
        lacks.append(("devices", f"this Horovod is built for CPU; {_ANEW} where CUDA is"))
    if found.nccl and len(set(on_gpus)) < len(on_gpus):
        lacks.append(("devices", "Horovod reduces over NCCL, which refuses two ranks on one GPU"))
    return lacks


def presence(afresh: bool = False) -> Presence:
    """What is known of Horovod here; `afresh` asks again whatever is known.

    Takes milliseconds where it is known, else as long as importing Horovod does.
    """
    package = _package()
    if package is None:
        return Presence("Horovod is not installed", f"install it with `{FIX}`")
    if _broken_off(package):
        return Presence("the installation of Horovod was broken off", f"repeat it with `{FIX}`")
    torch = torch_build()
    if not torch:
        return Presence("Horovod needs torch, which is not installed")
    built_for, anew = _built_for(package), f"build it anew with `{FIX}`"
    if built_for and built_for != torch["version"]:
        here = torch["version"]
        return Presence(f"Horovod is built for torch {built_for}, this is torch {here}", anew)
    answer = cache() / "answers" / f"{_key(package, torch)}.json"
    found = None if afresh else _kept(answer)
    if found is None:
        found = _ask()
        _keep(answer, found)
    return found


def cache() -> Path:
    """Where answers and wheels are kept: $XDG_CACHE_HOME/distrain/horovod, ~/.cache/…"""
    return platformdirs.user_cache_path("distrain") / "horovod"


def _package() -> Path | None:
    """Where Horovod is installed; neither a folder of that name is one nor this package."""
    importlib.invalidate_caches()  # it may have come since this process looked
    spec = importlib.util.find_spec("horovod")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return None if folder == Path(__file__).parent else folder


def _broken_off(package: Path) -> bool:
    """Who installs notes its own name in the end; until then it may work, and lack its commands."""
    noted = list(package.parent.glob("horovod-*.dist-info"))
    return bool(noted) and not any((folder / "INSTALLER").exists() for folder in noted)


def _built_for(package: Path) -> str | None:
    """The version of torch that Horovod was built for, as it noted itself."""
    try:
        noted: Any = json.loads((package / "metadata.json").read_text())["pytorch"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(noted)


def _key(package: Path, torch: dict[str, str | None]) -> str:
    """Changes with the question, the interpreter, torch and Horovod's own library."""
    library = next(iter(sorted(package.glob("torch/mpi_lib_v2*"))), package / "__init__.py")
    about = library.stat()
    paths = [os.environ.get(name) for name in ("PYTHONPATH", "LD_LIBRARY_PATH")]
    file = [str(library), about.st_size, about.st_mtime_ns]
    facts = [_IMPORT, sys.executable, sys.version, torch, paths, file]
    return sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _kept(file: Path) -> Presence | None:
    """The answer of before; a bad one is believed for a minute only."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Presence)
        age = time.time() - file.stat().st_mtime
    except (OSError, msgspec.MsgspecError):
        return None
    return None if found.why and not 0 <= age < DOUBT_S else found


def _keep(file: Path, found: Presence) -> None:
    """Whole or not at all; a cache that cannot be written costs time only."""
    draft = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(found))
        os.replace(draft, file)


def _ask() -> Presence:
    anew = f"build it anew with `{FIX}`"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _IMPORT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=IMPORT_S,
        )
    except subprocess.TimeoutExpired:
        return Presence(f"Horovod cannot be loaded: it did not end within {IMPORT_S:.0f} s", anew)
    if done.returncode != 0:
        return Presence(f"Horovod cannot be loaded: {_reason(done)}", anew)
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not answers:
        return Presence("Horovod cannot be loaded: Python ended before it was", anew)
    return Presence(version=_version(), **json.loads(answers[-1].removeprefix(_MARK)))


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"it was killed by {words.signal_name(-done.returncode)}"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1].strip()


def _version() -> str:
    from importlib import metadata  # 20 ms that a known answer need not pay

    try:
        return metadata.version("horovod")
    except metadata.PackageNotFoundError:
        return "of unknown version"
