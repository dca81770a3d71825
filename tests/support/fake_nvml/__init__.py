"""A machine with GPUs for tests: the real pynvml binding with a fake NVML library.

`compile_library` builds it once; a `FakeNvml` is one machine, whose `environment` goes to a
subprocess and whose `state` file may be rewritten while that runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MEBIBYTE = 1 << 20
NOT_SUPPORTED, NO_PERMISSION, NO_DRIVER, LOST = "!3", "!4", "!9", "!15"
COMPILER = shutil.which("cc") or shutil.which("gcc")


def compile_library(folder: Path) -> Path:
    """Build libnvidia-ml.so.1 in `folder` and return its path."""
    assert COMPILER is not None
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILER, *options, str(source), "-o", str(library)], check=True)
    return library


def uuid_of(gpu: int) -> str:
    return f"GPU-{gpu:08x}-1111-2222-3333-444444444444"


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    """Return the figures of an ordinary GPU in NVML's units (mW, mJ, bytes); None removes one."""
    figures = {
        "uuid": uuid_of(index),
        "name": "NVIDIA Fake 80GB",
        "memory_total": 81920 * MEBIBYTE,
        "memory_used": (1000 + index) * MEBIBYTE,
        "memory_used_v1": (1500 + index) * MEBIBYTE,
        "utilisation": 50 + index,
        "power": 250_500 + index,
        "temperature": 60 + index,
        "sm_clock": 1410,
        "memory_clock": 1593,
        "energy": 5_000_000 + index,
        "processes": f"{4711 + index}:{900 * MEBIBYTE}",
        "mig": 0,
    }
    return {key: value for key, value in (figures | changes).items() if value is not None}


def mig_instances(index: int, count: int) -> dict[str, dict[str, Any]]:
    """Return the instances of a GPU in MIG mode, which report little more than their memory."""
    return {
        f"{index}.{slot}": {
            "uuid": f"MIG-{index:08x}-{slot:04d}-2222-3333-444444444444",
            "name": "NVIDIA Fake 80GB MIG 1g.10gb",
            "memory_total": 9728 * MEBIBYTE,
            "memory_used": 12 * MEBIBYTE,
        }
        for slot in range(count)
    }


def fake_torch(folder: Path, cuda: str | None = "12.8") -> Path:
    """Write a torch that has only a version file; return the folder for PYTHONPATH."""
    package = folder / "fake-torch" / "torch"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise AssertionError('torch was imported')\n")
    version = f"__version__ = '2.13.0+fake'\ncuda: Optional[str] = {cuda!r}\n"
    (package / "version.py").write_text(version)
    return package.parent


# There is no GPU to compute on: the rank computes on the CPU instead.
COMPUTES = """
import sys
if "distrain.runners.training.worker" in sys.orig_argv:
    import torch
    from distrain.runners.distributed import device
    device.rank_device = lambda plan, local_rank: torch.device("cpu")
"""
REAL = """
import sys
sys.path.remove({folder!r})
del sys.modules["torch"]
import torch
"""


def computing_torch(folder: Path) -> Path:
    """Write a wrapper of the real torch that claims to be built for CUDA.

    Return the folder for PYTHONPATH, with which ranks on GPUs compute on the CPU.
    """
    packages = fake_torch(folder)
    (packages / "torch" / "__init__.py").write_text(REAL.format(folder=str(packages)))
    (packages / "sitecustomize.py").write_text(COMPUTES)
    return packages


class FakeNvml:
    """One machine. Its `environment` holds what a subprocess needs to see the GPUs."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library, self.state = library, folder / "nvml.txt"
        self.has(1)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if "CUDA" not in key}
        paths = [str(self.library.parent), inherited.get("LD_LIBRARY_PATH", "")]
        return inherited | {
            "LD_LIBRARY_PATH": ":".join(path for path in paths if path),
            "FAKE_NVML": str(self.state),
        }

    @property
    def without_driver(self) -> dict[str, str]:
        """Return environment changes that hide a real driver too, with an empty library file."""
        folder = self.state.with_name("no-driver")
        folder.mkdir(exist_ok=True)
        (folder / "libnvidia-ml.so.1").touch()
        return {"LD_LIBRARY_PATH": str(folder)}

    def has(self, gpus: int | list[dict[str, Any]], **system: Any) -> None:
        """Give the machine so many ordinary GPUs, or these."""
        part = self.state.with_suffix(".part")  # readers see the old or the new state, never a part
        part.write_text(self.text(gpus, **system))
        part.replace(self.state)

    @staticmethod
    def text(gpus: int | list[dict[str, Any]], **system: Any) -> str:
        """Return the text of the state file; a GPU's `instances` are those of `mig_instances`."""
        if isinstance(gpus, int):
            gpus = [gpu(index) for index in range(gpus)]
        figures: dict[str, Mapping[str, Any]] = {
            "system": {"count": len(gpus), "driver": "570.86.15", "cuda": 12080} | system
        }
        for index, machine in enumerate(gpus):
            figures |= machine.get("instances", {})
            figures[str(index)] = {k: v for k, v in machine.items() if k != "instances"}
        lines = [
            f"{device} {key} {value}"
            for device, values in figures.items()
            for key, value in values.items()
        ]
        return "\n".join(lines) + "\n"

    def python(self, code: str, **environment: str) -> str:
        """Run `code` in a process that sees these GPUs; return its output."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout
