"""Whether Horovod can be used here, and what it is built with.

Only importing Horovod answers that for sure. It takes seconds and is done by a subprocess. The
answer is cached for as long as what it depends on stays the same, because the app asks at every
change of a form.
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

from distrain.runners import formatting
from distrain.runners.system import home_folders
from distrain.runners.system.devices import Device, torch_build

FIX = "distrain doctor --fix horovod"
IMPORT_TIMEOUT_S = 120.0
# A missing library may be installed without any change of the cache's key.
RETRY_AFTER_S = 60.0
_REBUILD = f"rebuild it with `pip uninstall horovod` and `{FIX}`"

_MARK = "Horovod has: "  # MPI and other libraries print lines as well, some of them at the end
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
    """Whether Horovod can be used.

    `why`: the reason why it cannot; empty if it can.
    `fix`: how to fix that.
    `gloo`, `mpi`, `nccl`, `cuda`: what it is built with; known only if it works.
    """

    why: str = ""
    fix: str = msgspec.field(default="", name="mend")
    version: str = ""
    gloo: bool = False
    mpi: bool = False
    nccl: bool = False
    cuda: bool = False

    @property
    def problem(self) -> str:
        """Reason and fix as one sentence; empty if there is no problem."""
        return "; ".join(text for text in (self.why, self.fix) if text)

    @property
    def transports(self) -> list[str]:
        """What can carry data between ranks: of "nccl", "gloo" and "mpi"."""
        return [name for name in ("nccl", "gloo", "mpi") if getattr(self, name)]


def problem() -> str:
    """Return why Horovod cannot be used here, and the command that fixes it; empty if it can."""
    return presence().problem


def problems(via: str, devices: Sequence[Device]) -> list[tuple[str, str]]:
    """Return what prevents a run with Horovod, as (key of the config, sentence).

    `via` is the value of `horovod.via`, `devices` those of the ranks.
    """
    installed = presence()
    if installed.why:
        return [("strategy", installed.problem)]
    found = []
    if via == "mpirun" and not installed.mpi:
        text = f"this Horovod is built without MPI; install MPI and {_REBUILD}"
        found.append(("horovod.via", text))
    if via != "mpirun" and not installed.gloo:
        text = f"this Horovod is built without Gloo; use mpirun, or {_REBUILD}"
        found.append(("horovod.via", text))
    gpus = [device.uuid for device in devices if device.kind == "cuda"]
    if gpus and not installed.cuda:
        text = f"this Horovod is built for CPU; install a CUDA toolkit and {_REBUILD}"
        found.append(("devices", text))
    if installed.nccl and len(set(gpus)) < len(gpus):
        text = "Horovod reduces over NCCL, which refuses two ranks on one GPU"
        found.append(("devices", text))
    return found


def presence(refresh: bool = False) -> Presence:
    """Return whether Horovod can be used here; `refresh` ignores a cached answer.

    Takes milliseconds with a cached answer, and else as long as importing Horovod.
    """
    package = _package_folder()
    if package is None:
        return Presence("Horovod is not installed", f"install it with `{FIX}`")
    if _is_incomplete(package):
        why = "the installation of Horovod was interrupted"
        return Presence(why, f"repeat it with `{FIX}`")
    torch = torch_build()
    if not torch:
        return Presence("Horovod needs torch, which is not installed")
    built_for = _built_for(package)
    if built_for and built_for != torch["version"]:
        why = f"Horovod is built for torch {built_for}, this is torch {torch['version']}"
        return Presence(why, f"rebuild it with `{FIX}`")
    answer = cache_folder() / "answers" / f"{_key(package, torch)}.json"
    found = None if refresh else _read_answer(answer)
    if found is None:
        found = _import_horovod()
        _write_answer(answer, found)
    return found


def cache_folder() -> Path:
    """Return the folder of answers and wheels: $XDG_CACHE_HOME/distrain/horovod, ~/.cache/…"""
    return home_folders.cache_folder() / "horovod"


def _package_folder() -> Path | None:
    """Return where Horovod is installed; ignore an empty folder of that name and this package."""
    importlib.invalidate_caches()  # it may have been installed since the last look
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return None if folder.resolve() == Path(__file__).resolve().parent else folder


def _is_incomplete(package: Path) -> bool:
    """Return whether pip was interrupted: it writes the file INSTALLER at the end.

    Until then Horovod may work, but lack its commands.
    """
    folders = list(package.parent.glob("horovod-*.dist-info"))
    return bool(folders) and not any((folder / "INSTALLER").exists() for folder in folders)


def _built_for(package: Path) -> str | None:
    """Return the version of torch that Horovod was built for, from its own metadata."""
    try:
        version: Any = json.loads((package / "metadata.json").read_text())["pytorch"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(version)


def _key(package: Path, torch: dict[str, str | None]) -> str:
    """Return a cache key: it changes with the probe script, the interpreter, torch and Horovod's
    library.
    """
    library = next(iter(sorted(package.glob("torch/mpi_lib_v2*"))), package / "__init__.py")
    status = library.stat()
    paths = [os.environ.get(name) for name in ("PYTHONPATH", "LD_LIBRARY_PATH")]
    file = [str(library), status.st_size, status.st_mtime_ns]
    facts = [_IMPORT, sys.executable, sys.version, torch, paths, file]
    return sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _read_answer(file: Path) -> Presence | None:
    """Return the cached answer; one that names a problem is valid for a minute only."""
    try:
        answer = msgspec.json.decode(file.read_bytes(), type=Presence)
        age = time.time() - file.stat().st_mtime
    except (OSError, msgspec.MsgspecError):
        return None
    return None if answer.why and not 0 <= age < RETRY_AFTER_S else answer


def _write_answer(file: Path, answer: Presence) -> None:
    """Write an answer atomically; a cache that cannot be written only costs time."""
    draft = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(answer))
        os.replace(draft, file)


def _import_horovod() -> Presence:
    """Import Horovod in a subprocess and return what it is built with."""
    fix = f"rebuild it with `{FIX}`"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _IMPORT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=IMPORT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        why = f"its import did not end within {IMPORT_TIMEOUT_S:.0f} s"
        return Presence(f"Horovod cannot be loaded: {why}", fix)
    if done.returncode != 0:
        return Presence(f"Horovod cannot be loaded: {_why_failed(done)}", fix)
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not answers:
        return Presence("Horovod cannot be loaded: Python exited during its import", fix)
    return Presence(version=_version(), **json.loads(answers[-1].removeprefix(_MARK)))


def _why_failed(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"its import was killed by {formatting.signal_name(-done.returncode)}"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1].strip()


def _version() -> str:
    from importlib import metadata  # takes 20 ms, which a cached answer does not need

    try:
        return metadata.version("horovod")
    except metadata.PackageNotFoundError:
        return "of unknown version"
